/* The version of all of duet, read by the Makefile too. */
#ifndef DUET_BASE_VERSION_H
#define DUET_BASE_VERSION_H

#define DUET_VERSION "0.1.0"

#endif
