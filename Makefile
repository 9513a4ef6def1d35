# duet: see `make help`.

MODE   ?= release
CC     ?= cc
BUILD  := build/host-$(MODE)

LIBS   := libcjson libpcre2-8 libutf8proc libedit
CFLAGS_release := -O2 -g
CFLAGS_debug   := -O0 -g
CFLAGS_asan    := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CPPFLAGS += -I. -D_GNU_SOURCE -MMD -MP
CFLAGS   += -std=c11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith -Wvla -ffp-contract=off -fopenmp \
            $(CFLAGS_$(MODE)) $(shell pkg-config --cflags $(LIBS) 2>/dev/null)
LDLIBS   += $(shell pkg-config --libs $(LIBS) 2>/dev/null) -lm

LIB_DIRS := base graphs model model/kernels/host sampler draft target verify engine
LIB_SRC  := $(wildcard $(addsuffix /*.c,$(LIB_DIRS)))
CLI_SRC  := $(wildcard cli/*.c)
TEST_SRC := $(wildcard tests/*.c)
SUITES   := $(patsubst tests/%.c,%,$(wildcard tests/check_*.c))
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o)
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o)

all: build/duet

build/duet: $(BUILD)/duet
	ln -sf host-$(MODE)/duet $@

$(BUILD)/duet: $(LIB_OBJ) $(CLI_OBJ)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

# The test runner: every tests/check_NAME.c defines `Suite *check_NAME(void)`.
$(BUILD)/tests/suites.h: $(wildcard tests/check_*.c)
	@mkdir -p $(@D)
	@{ for s in $(SUITES); do echo "SUITE($$s)"; done; } > $@
$(BUILD)/tests/run.o: CPPFLAGS += -I$(BUILD)/tests
$(BUILD)/tests/run.o: $(BUILD)/tests/suites.h
$(BUILD)/tests/run: $(LIB_OBJ) $(TEST_OBJ)
	$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) $(shell pkg-config --libs check) -o $@

# One suite: make test SUITE=check_sampler
test: $(BUILD)/tests/run build/duet
	DUET=build/duet $(BUILD)/tests/run $(SUITE)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

clean:
	rm -rf build

.PHONY: all test clean
-include $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_OBJ:.o=.d)
