/* What the suites of charts share. */
#ifndef DUET_TESTS_XML_H
#define DUET_TESTS_XML_H

/* Every tag that opens closes in its turn, and there is no other markup: enough for what plot_svg writes. */
void expect_xml(const char *text);
/* How often `part` occurs. */
int count_parts(const char *text, const char *part);

#endif
