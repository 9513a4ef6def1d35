/* Decimal text and doubles as JSON has them: with a point, whatever locale the program around a library has set. From any thread. */
#ifndef DUET_BASE_JSON_NUMBER_H
#define DUET_BASE_JSON_NUMBER_H

enum { JSON_NUMBER_BYTES = 40 };

/* `text`: a JSON number and its NUL. The nearest double; infinite beyond a double's range. */
double json_number_read(const char *text);
/* The fewest digits, of 15 to 17, that read back as `value`, which is finite. */
void json_number_write(double value, char out[JSON_NUMBER_BYTES]);
/* The double with the fewest digits that a reader of floats takes for `value`: 0.7 for 0.7f. */
double json_number_of_float(float value);

#endif
