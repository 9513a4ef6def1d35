/* A Hugging Face directory as the GGUF file that llama.cpp's converter makes of it: its names, its order of rows of q and k, its sums
 * in norms, stacked experts; all numbers in f32. For tests that compare both. */
#ifndef DUET_TESTS_GGUF_CONVERT_H
#define DUET_TESTS_GGUF_CONVERT_H

/* `parts` files, the name of the first being as they require it where there are several ("x-00001-of-00002.gguf"). */
void gguf_convert(const char *dir, const char *path, int parts);

#endif
