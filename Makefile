# duet. `make help` lists the targets.
#
# MODE=release|debug|asan|tsan  DEVICE=host|cuda  CUDA_ARCH=sm_90 ...|all  CUDA_QUICK=1  CC=gcc|clang  PREFIX=  DESTDIR=  WERROR=1  V=1

MODE   ?= release
PREFIX ?= /usr/local
CC     := $(if $(filter default,$(origin CC)),cc,$(CC))
NVCC   ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))

# The CUDA device is built where there is an nvcc. .cu files replace the stub that says that there is none.
CU_SRC   := $(wildcard graphs/*.cu model/kernels/cuda/*.cu draft/*.cu round/*.cu sampler/*.cu verify/*.cu)
CU_STUB  := $(wildcard */no_cuda.c */*/no_cuda.c)
TEST_CU  := $(wildcard tests/support/*.cu)
NVCC_OLD := $(if $(NVCC),$(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | \
                                 awk '$$1 * 100 + $$2 < 1206 { print $$1 "." $$2 }'))
DEVICE   ?= $(if $(and $(NVCC),$(CU_SRC),$(if $(NVCC_OLD),,new)),cuda,host)
BUILD    := build/$(DEVICE)-$(MODE)

# No fuzz target runs a model, and kernels are what takes long to compile.
LIB_DIRS := base graphs model model/jinja model/text model/files model/families $(if $(filter fuzz,$(MODE)),,model/kernels/host) round \
            sampler target draft verify engine
LIB_SRC  := $(wildcard $(addsuffix /*.c,$(LIB_DIRS)))
CLI_SRC  := $(wildcard cli/*.c)
API_SRC  := $(wildcard lib/*.c)
# tests/: a folder a room, each with suites check_NAME.c; support/ has what suites share, faults/ and fidelity/ programs of their own.
SUITE_SRC := $(filter-out tests/cuda/%,$(wildcard tests/*/check_*.c))
FAULT_SRC := $(filter-out tests/faults/interpose.c tests/faults/main.c tests/faults/check_%,$(wildcard tests/faults/*.c))
SHARED_SRC := tests/runner.c $(wildcard tests/support/*.c) $(filter-out %/main.c tests/fidelity/check_%,$(wildcard tests/fidelity/*.c))
# Of the suites that SUITE names those alone are built.
BUILT_SRC := $(or $(foreach s,$(SUITE),$(filter %/$(s).c,$(SUITE_SRC))),$(SUITE_SRC))
TEST_SRC := tests/run.c $(BUILT_SRC) $(SHARED_SRC) $(FAULT_SRC)
FUZZ_SRC := $(wildcard fuzz/*.c)
HEADERS  := $(wildcard $(addsuffix /*.h,$(LIB_DIRS) lib cli tests tests/support tests/cuda tests/faults tests/fidelity fuzz))
SUITES   := $(basename $(notdir $(SUITE_SRC)))

# Of a release lines alone: where variables lie in inlined loops takes a third of the time to compile C, and changes no instruction.
CFLAGS_release := -O2 -g1
CFLAGS_debug   := -O0 -g
CFLAGS_asan    := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS_isa_asan := -O2 -fno-sanitize=all
CFLAGS_portable_asan := -fno-sanitize=null,pointer-overflow,object-size
CFLAGS_portable_tsan := -O1
CFLAGS_fuzz    := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -Wno-pass-failed
CFLAGS_tsan    := -O1 -g1 -fsanitize=thread -fno-omit-frame-pointer
ifeq ($(CFLAGS_$(MODE)),)
$(error MODE=$(MODE): expected release, debug, asan, tsan or fuzz)
endif

LIBS      := libcjson libpcre2-8 libutf8proc libedit
LIB_FLAGS := $(shell pkg-config --cflags $(LIBS) check 2>/dev/null || pkg-config --cflags $(LIBS) 2>/dev/null)
WARNINGS  := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith -Wvla $(if $(WERROR),-Werror)
override CPPFLAGS += -I. -D_GNU_SOURCE -MMD -MP
override CFLAGS   += -std=c11 $(WARNINGS) -ffp-contract=off -fopenmp-simd -pthread -fPIC -fvisibility=hidden $(CFLAGS_$(MODE)) $(LIB_FLAGS)
override LDLIBS   += $(shell pkg-config --libs $(LIBS) 2>/dev/null) -lm

ifeq ($(DEVICE),cuda)
ifeq ($(and $(NVCC),$(CU_SRC)),)
$(error DEVICE=cuda needs nvcc and the CUDA sources; DEVICE=host needs neither)
endif
ifneq ($(NVCC_OLD),)
$(error DEVICE=cuda needs nvcc 12.6 or later; $(NVCC) is $(NVCC_OLD))
endif
LIB_SRC   := $(filter-out $(CU_STUB),$(LIB_SRC))
SHARED_SRC := $(filter-out $(CU_STUB),$(SHARED_SRC))
TEST_SRC  := $(filter-out $(CU_STUB),$(TEST_SRC))
CUDA_LIB  := $(firstword $(wildcard $(dir $(realpath $(NVCC)))../lib64) $(dir $(realpath $(NVCC)))../lib)
# CUDA_ARCH: architectures such as sm_90, or `all`; the default is the GPU that is there, else sm_90. With `all`, PTX of the last
# one lets newer GPUs run the program. 90a is sm_90 with the instructions that no later architecture has (wgmma).
CUDA_ARCH ?= $(or $(patsubst %,sm_%,$(sort $(subst .,,$(shell \
                 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -x '[0-9]*[.][0-9]')))),sm_90)
ARCHS     := $(patsubst sm_%,%,$(if $(filter all,$(CUDA_ARCH)),sm_80 sm_86 sm_89 sm_90 sm_100 sm_120,$(CUDA_ARCH)))
PTX       := -gencode arch=compute_$(lastword $(ARCHS)),code=compute_$(lastword $(ARCHS))
gencode    = $(foreach a,$(1:90=90a),-gencode arch=compute_$a,code=sm_$a)
GENCODE   := $(call gencode,$(ARCHS)) $(if $(filter all,$(CUDA_ARCH)),$(PTX))
# CUDA_QUICK=1: slow kernels in a third of the compile time, to see that they compile. nvcc before 13 may know no such option. Lines of
# kernels, which compute-sanitizer and profilers name, take a twentieth of the time: a release has none.
QUICK     := $(if $(CUDA_QUICK),$(if $(shell $(NVCC) --help | grep -e --Ofast-compile),-Ofc max))
NVCCFLAGS := -std=c++17 -O1 $(or $(QUICK),$(if $(filter-out release,$(MODE)),-g -lineinfo)) -I. -MMD -MP \
             -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden $(if $(WERROR),-Werror all-warnings)
# cuBLAS is loaded by name (graphs/cuda_blas.cuh), from there too. Sanitizers call dlopen in the program's place, for which the
# loader looks at their DT_RUNPATH; DT_RPATH of the program counts for all.
RPATH_asan := -Wl,--disable-new-dtags
RPATH_tsan := $(RPATH_asan)
override LDLIBS += -L$(CUDA_LIB) $(RPATH_$(MODE)) -Wl,-rpath,$(abspath $(CUDA_LIB)) -lcudart -lstdc++ -ldl
else ifneq ($(DEVICE),host)
$(error DEVICE=$(DEVICE): expected host or cuda)
else
CU_SRC  :=
TEST_CU :=
ifneq ($(and $(NVCC_OLD),$(filter 0,$(MAKELEVEL))),)
$(info nvcc $(NVCC_OLD) is older than 12.6: no CUDA device in this build)
endif
endif

# Kernels first, which take longest: what is left at the end is small.
LIB_OBJ  := $(CU_SRC:%=$(BUILD)/%.o) $(LIB_SRC:%.c=$(BUILD)/%.o)
CLI_OBJ  := $(CLI_SRC:%.c=$(BUILD)/%.o)
API_OBJ  := $(API_SRC:%.c=$(BUILD)/%.o)
TEST_OBJ := $(TEST_SRC:%.c=$(BUILD)/%.o) $(TEST_CU:%=$(BUILD)/%.o)
FUZZ_OBJ := $(FUZZ_SRC:%.c=$(BUILD)/%.o)

# All cores, unless -j says otherwise; two commands at once (`make demo test`) take turns.
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(or $(shell nproc 2>/dev/null),2)
endif
ifneq ($(filter demo test test-cuda test-emulated test-cuda-sanitize torture fidelity valgrind mutate fuzz fuzz-replay deps,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif
AGAIN := @+$(MAKE) --no-print-directory
Q     := $(if $(V),,@)
say    = $(if $(V),,@echo "  $(1)	$(2)")

# --- program ----------------------------------------------------------------------------------------------

VERSION := $(shell sed -n 's/^.define DUET_VERSION "\(.*\)"/\1/p' base/version.h)
# Programs that were linked with libduet.so.0 run with every later one of this number: lib/duet.h may grow and not change.
SONAME  := libduet.so.0
SO      := $(BUILD)/libduet.so.$(VERSION)

all: $(BUILD)/duet $(SO)
	$(Q)test "$$(readlink build/duet)" = $(<:build/%=%) || ln -sfn $(<:build/%=%) build/duet

build-program: $(BUILD)/duet $(SO)

$(BUILD)/duet: $(LIB_OBJ) $(CLI_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

# Its threads outlive what calls it, so it is never unloaded.
$(SO): $(LIB_OBJ) $(API_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,$(SONAME) -Wl,-z,nodelete -Wl,--as-needed $(LDFLAGS) $^ $(LDLIBS) -o $@
	$(Q)ln -sfn $(@F) $(@D)/$(SONAME) && ln -sfn $(SONAME) $(@D)/libduet.so

$(BUILD)/%.o: %.c $(BUILD)/flags | build/deps.build
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# In a template nvcc lets the host call a function of the device, and makes exit() of it, which -O1 leaves out where nobody gets there.
$(BUILD)/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCCFLAGS) $(GENCODE) -c $< -o $@
	$(Q)! nm $@ | grep -q ' U exit$$' || { rm $@; echo "duet: $<: the host calls a __device__ function" >&2; exit 1; }

# With the address sanitizer's checks in the inner loops, models take five times as long. Plain C has the checks, of the same loops;
# what differs in the others is tried on memory that ends where nobody may read on (tests/support/ops_lab.h).
$(patsubst %,$(BUILD)/model/kernels/host/isa_%.o,avx2 avx512 neon): private override CFLAGS += $(CFLAGS_isa_$(MODE))
$(BUILD)/model/kernels/host/isa_portable.o: private override CFLAGS += $(CFLAGS_portable_$(MODE))

# Draws and acceptance give the host's bits: no product is fused into a sum but by fmaf.
$(patsubst %,$(BUILD)/%.o,$(wildcard sampler/*.cu verify/*.cu)): private NVCCFLAGS += --fmad=false

# A quick build for several architectures compiles these for one, as nothing in them depends on it that others have not, too: products are
# made of the templates of product_matrix.cu and experts_down.cu, and attention_cluster.cu is empty without clusters.
ifneq ($(and $(CUDA_QUICK),$(word 2,$(ARCHS))),)
$(patsubst %,$(BUILD)/model/kernels/cuda/%.cu.o,attention_cluster experts_up gate_up product_matrices qkv): private GENCODE := \
    $(call gencode,$(or $(filter 90,$(ARCHS)),$(lastword $(ARCHS))))
endif

# What was built with other flags is built again: each stamp changes only when its text does.
define STAMP
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(STAMP_TEXT))' | cmp -s - $@ || echo '$(subst ','\'',$(STAMP_TEXT))' > $@
endef
$(BUILD)/flags: STAMP_TEXT = $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(LDLIBS) $(NVCC) $(NVCCFLAGS) $(GENCODE)
$(BUILD)/prefix: STAMP_TEXT = $(PREFIX)
# Of the sources, for --version; "+": changed since. Empty outside a repository.
COMMIT := $(shell git describe --always --exclude='*' --dirty=+ 2>/dev/null)
$(BUILD)/commit: STAMP_TEXT = $(COMMIT)
$(BUILD)/flags $(BUILD)/prefix $(BUILD)/commit: FORCE
	$(STAMP)
$(BUILD)/cli/models.o: private override CPPFLAGS += -DDUET_PREFIX='"$(PREFIX)"'
$(BUILD)/cli/models.o: $(BUILD)/prefix
$(BUILD)/cli/main.o: private override CPPFLAGS += -DDUET_COMMIT='"$(COMMIT)"'
$(BUILD)/cli/main.o: $(BUILD)/commit

# --- what the build needs ---------------------------------------------------------------------------------

deps:
	@CC='$(CC)' tools/install-deps build test

build/deps.%: tools/install-deps
	@mkdir -p $(@D)
	@CC='$(CC)' tools/install-deps --check $*
	@touch $@

# --- tests: every tests/*/check_NAME.c defines `Suite *check_NAME(void)` ----------------------------------

$(BUILD)/tests/suites.h: STAMP_TEXT = $(foreach s,$(basename $(notdir $(BUILT_SRC))),SUITE($(s)))
$(BUILD)/tests/suites.h: FORCE
	$(STAMP)
$(TEST_OBJ): | build/deps.test
$(BUILD)/tests/run.o: private override CPPFLAGS += -I$(BUILD)/tests
$(BUILD)/tests/run.o: $(BUILD)/tests/suites.h
# Every fuzz target, under the name of its file, for check_fuzz.
HARNESSES := $(patsubst fuzz/%.c,%,$(wildcard fuzz/fuzz_*.c))
$(BUILD)/tests/harnesses.h: STAMP_TEXT = $(foreach h,$(HARNESSES),HARNESS($(h)))
$(BUILD)/tests/harnesses.h: FORCE
	$(STAMP)
$(BUILD)/tests/project/check_fuzz.o: private override CPPFLAGS += -I$(BUILD)/tests
$(BUILD)/tests/project/check_fuzz.o: $(BUILD)/tests/harnesses.h
ifneq ($(MODE),fuzz)
$(BUILD)/fuzz/fuzz_%.o: private override CPPFLAGS += -DLLVMFuzzerTestOneInput=$(notdir $*)
endif
# Check, told of each place once (tests/support/mark_point.c).
CHECK_LIBS := -Wl,--wrap=_mark_point $(shell pkg-config --libs check 2>/dev/null)
# Commands run inside tests too, over devices with faults to order (tests/support/faulty_host.h and failing_device.h).
WRAP := -Wl,--wrap=device_open_host,--wrap=device_open_cuda,--wrap=record_write
$(BUILD)/tests/run: $(LIB_OBJ) $(API_OBJ) $(filter-out $(BUILD)/cli/main.o,$(CLI_OBJ)) $(TEST_OBJ) \
                    $(if $(filter %/check_fuzz.c,$(BUILT_SRC)),$(FUZZ_OBJ))
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(WRAP) $^ $(LDLIBS) $(CHECK_LIBS) -o $@

# On a GPU: tests/cuda/check_NAME.c and .cu, and those of the suites above that say DEVICE_SUITE. CUDA after fork is undefined,
# so this runner forks no tests and has no time limits of its own.
CUDA_TEST_SRC := $(wildcard tests/cuda/*.c tests/cuda/*.cu)
DEVICE_SUITE_SRC := $(shell grep -l ^DEVICE_SUITE $(SUITE_SRC))
CUDA_SUITES   := $(basename $(notdir $(filter tests/cuda/check_%,$(CUDA_TEST_SRC)) $(DEVICE_SUITE_SRC)))
CUDA_TEST_OBJ := $(patsubst %.cu,$(BUILD)/%.cu.o,$(patsubst %.c,$(BUILD)/%.o,$(CUDA_TEST_SRC))) \
                 $(patsubst %.c,$(BUILD)/%.o,$(SHARED_SRC) $(DEVICE_SUITE_SRC)) $(TEST_CU:%=$(BUILD)/%.o)
$(BUILD)/tests/cuda/suites.h: STAMP_TEXT = $(foreach s,$(CUDA_SUITES),SUITE($(s)))
$(BUILD)/tests/cuda/suites.h: FORCE
	$(STAMP)
$(BUILD)/tests/cuda/run.o: private override CPPFLAGS += -I$(BUILD)/tests/cuda
$(BUILD)/tests/cuda/run.o: $(BUILD)/tests/cuda/suites.h
$(BUILD)/tests/run_cuda: $(LIB_OBJ) $(API_OBJ) $(filter-out $(BUILD)/cli/main.o,$(CLI_OBJ)) $(CUDA_TEST_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(WRAP) $^ $(LDLIBS) $(CHECK_LIBS) -o $@

test-cuda: deps
	$(AGAIN) DEVICE=cuda run-tests-cuda
build-tests-cuda: $(BUILD)/tests/run_cuda
run-tests-cuda: $(BUILD)/tests/run_cuda $(BUILD)/duet
	$(Q)timeout 1800 $(BUILD)/tests/run_cuda $(SUITE)

# The CUDA device's suites on the CPU, where there is no GPU (tests/emulated/README.md): the small cases.
EMULATED_SUITES := check_rows_cuda check_prefill_cuda check_sampler_cuda check_philox_cuda
test-emulated: deps
	$(Q)DUET_TEST_SMALL=1 $(MAKE) --no-print-directory -C tests/emulated SUITE="$(or $(SUITE),$(EMULATED_SUITES))"

# The small cases of these suites under NVIDIA's checkers of memory, races and barriers; TOOL=memcheck runs one of them.
# Racecheck takes minutes for wide products: it has the suites whose passes are of few rows.
SANITIZE_SUITES   := check_rows_cuda check_prefill_cuda check_sampler_cuda
SANITIZE_MORE     := check_ops_cuda check_experts_cuda check_philox_cuda check_steady
SANITIZE_TOOLS    := memcheck racecheck synccheck initcheck
COMPUTE_SANITIZER ?= $(or $(shell command -v compute-sanitizer),$(dir $(NVCC))compute-sanitizer)
test-cuda-sanitize: deps
	$(AGAIN) DEVICE=cuda run-tests-cuda-sanitize
run-tests-cuda-sanitize: export DUET_TEST_SMALL := 1
run-tests-cuda-sanitize: $(BUILD)/tests/run_cuda
	$(Q)for tool in $(or $(TOOL),$(SANITIZE_TOOLS)); do \
	    echo "== $$tool"; \
	    more="$(SANITIZE_MORE)"; test $$tool != racecheck || more=; \
	    timeout 1800 $(COMPUTE_SANITIZER) --tool $$tool --error-exitcode 9 $< $(or $(SUITE),$(SANITIZE_SUITES) $$more) || exit; \
	done

# The claims of docs/CORRECTNESS.md, each with its figure, as a table; FIDELITY=small for the sizes of `make test`.
FIDELITY_SRC := tests/fidelity/main.c \
                $(filter-out tests/runner.c %/api_support.c %/batch_here.c %/chat_terminal.c %/faulty_host.c %/failing_device.c,$(SHARED_SRC))
FIDELITY_OBJ := $(FIDELITY_SRC:%.c=$(BUILD)/%.o) $(TEST_CU:%=$(BUILD)/%.o)
$(BUILD)/tests/run_fidelity: $(LIB_OBJ) $(FIDELITY_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) $(CHECK_LIBS) -o $@
$(FIDELITY_OBJ): | build/deps.test
build-fidelity: $(BUILD)/tests/run_fidelity
fidelity: deps
	$(AGAIN) run-fidelity
run-fidelity: $(BUILD)/tests/run_fidelity
	$(Q)$<

# The program with one call at a time that fails, in many short runs, as a table (tests/faults/main.c). The library
# that lets calls fail is loaded into the program of any MODE, so it has none of its flags.
FAULTS_SO := $(BUILD)/tests/faults.so
$(FAULTS_SO): tests/faults/interpose.c tests/faults/log.h $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -std=c11 -I. -D_GNU_SOURCE $(WARNINGS) -O2 -g -fPIC -shared $< -o $@
TORTURE_OBJ := $(patsubst %.c,$(BUILD)/%.o,tests/faults/main.c $(FAULT_SRC) $(addprefix tests/support/,mark_point.c program.c support.c))
$(TORTURE_OBJ): | build/deps.test
$(BUILD)/tests/run_torture: $(LIB_OBJ) $(filter-out $(BUILD)/cli/main.o,$(CLI_OBJ)) $(TORTURE_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) $(CHECK_LIBS) -o $@
torture: deps
	$(AGAIN) run-torture
run-torture: export DUET := $(BUILD)/duet
run-torture: $(BUILD)/tests/run_torture $(BUILD)/duet $(FAULTS_SO)
	$(Q)$< $(SCENARIO)

ifneq ($(filter-out $(SUITES) $(CUDA_SUITES),$(SUITE)),)
$(error SUITE=$(SUITE): expected some of $(sort $(SUITES) $(CUDA_SUITES)))
endif

test: deps
	$(AGAIN) run-tests

# A tree as `make install` leaves it, for the suites that look at it; and how they compile a program against it.
INSTALLED := $(BUILD)/installed
build-tests: $(BUILD)/tests/run $(FAULTS_SO) $(INSTALLED)/done
run-tests: export DUET := $(BUILD)/duet
run-tests: export DUET_INSTALLED := $(abspath $(INSTALLED))$(PREFIX)
run-tests: export DUET_CC := $(CC) $(CFLAGS_$(MODE))
run-tests: export TSAN_OPTIONS ?= die_after_fork=0:atexit_sleep_ms=0
ifneq ($(and $(filter-out asan tsan,$(MODE)),$(wildcard build/data/smollm2/model.safetensors)),)
run-tests: export DUET_SMOLLM2 ?= build/data/smollm2
endif
ifneq ($(wildcard build/data/templates),)
run-tests: export DUET_TEMPLATES ?= build/data/templates
endif
ifneq ($(and $(filter-out asan tsan,$(MODE)),$(wildcard build/data/smollm2.gguf)),)
run-tests: export DUET_SMOLLM2_GGUF ?= build/data/smollm2.gguf
endif
ifneq ($(SUITE),)
run-tests: $(BUILD)/tests/run $(BUILD)/duet $(FAULTS_SO) $(INSTALLED)/done
	$(Q)$(BUILD)/tests/run $(SUITE)
else
# Suites run side by side, each with a log; the last line sums them up. The longest begin first, so that none is left alone at the end.
LONGEST := check_chat_references check_faults_files check_faults check_device_faults check_fidelity check_lossless check_ngram check_steady \
           check_auto_k_texts check_rounds check_bench check_ops_rows check_cache
# What is as true on one thread has a processor of its own where that saves the most: side by side, engines with a thread for every
# processor wait for each other's. check_lossless and the other suites have all processors, so that several threads stay tested.
ONE_CORE := check_chat_references check_ngram check_steady check_auto_k_texts check_rounds check_cache check_ids
LOGS := $(patsubst %,$(BUILD)/logs/%,$(LONGEST) $(filter-out $(LONGEST),$(SUITES)))
run-tests: $(LOGS)
	@tools/sum-tests $(LOGS)
$(LOGS): $(BUILD)/logs/%: $(BUILD)/tests/run $(BUILD)/duet $(FAULTS_SO) $(INSTALLED)/done FORCE
	@mkdir -p $(@D)
	@began=$$(date +%s); $(if $(filter $*,$(ONE_CORE)),tools/one-core $(@D)) $(BUILD)/tests/run $* > $@ 2>&1; tools/sum-tests --suite $@ $$(($$(date +%s) - began))
endif

# --- fuzzing: every fuzz/fuzz_NAME.c is a target, build/fuzz/fuzz_NAME (fuzz/README.md) ----------------------

FUZZ_SECONDS ?= 60
FUZZ_CC      := $(if $(findstring clang,$(CC)),$(CC),clang)
ifneq ($(filter-out $(HARNESSES:fuzz_%=%),$(FUZZ)),)
$(error FUZZ=$(FUZZ): expected some of $(HARNESSES:fuzz_%=%))
endif

fuzz fuzz-replay:
	@CC='$(FUZZ_CC)' tools/install-deps --check build fuzz
	$(AGAIN) CC='$(FUZZ_CC)' DEVICE=host MODE=fuzz FUZZ_SECONDS=$(if $(filter fuzz,$@),$(FUZZ_SECONDS),0) run-fuzz
run-fuzz: $(patsubst %,build/fuzz/%,$(if $(FUZZ),$(FUZZ:%=fuzz_%),$(HARNESSES)))
	@tools/fuzz $(FUZZ_SECONDS) $(^F:fuzz_%=%)

# Of the library a target gets the parts that it calls.
$(BUILD)/duet.a: $(LIB_OBJ) $(filter-out $(BUILD)/cli/main.o,$(CLI_OBJ)) $(filter-out $(BUILD)/fuzz/fuzz_%,$(FUZZ_OBJ))
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcsT $@ $^
build/fuzz/fuzz_%: $(BUILD)/fuzz/fuzz_%.o $(BUILD)/duet.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) -fsanitize=fuzzer $(LDFLAGS) $^ $(LDLIBS) -o $@

# The program and some suites under valgrind; SUITE=check_NAME for others.
valgrind: deps
	@CC='$(CC)' tools/install-deps valgrind
	$(AGAIN) run-valgrind
run-valgrind: $(BUILD)/tests/run $(BUILD)/duet
	$(Q)tools/memcheck $(BUILD)/duet $(BUILD)/tests/run $(SUITE)

# Succeeds where this build has the CUDA device.
has-cuda:
	@test $(DEVICE) = cuda

# Small faults, one at a time, that the suites must catch; MUTANT=tests/mutants/NAME.patch for one of them.
mutate: deps
	@tools/mutate $(MUTANT)

test-data:
	@tools/test-data build/data

# --- measurements of parts: make build/host-release/bench/NAME ---------------------------------------------

$(BUILD)/bench/%: $(BUILD)/bench/%.o $(LIB_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

# --- demo -------------------------------------------------------------------------------------------------

demo: deps
	$(AGAIN) all
	@tools/demo build/duet assets/prompts.jsonl

# --- lint -------------------------------------------------------------------------------------------------

lint: lint-format lint-shell lint-headers lint-arm lint-links
	$(AGAIN) run-tests SUITE=check_layering

lint-format:
	@tools/check-format
lint-shell:
	@tools/check-shell
# A header with a guard compiles alone: it includes what it needs. One without is a template that its includer completes.
ifneq ($(filter lint lint-headers,$(MAKECMDGOALS)),)
ALONE := $(patsubst %,$(BUILD)/alone/%,$(shell grep -l '^#ifndef DUET_' $(HEADERS)))
endif
lint-headers: $(ALONE)

$(BUILD)/alone/%: % $(BUILD)/flags | build/deps.build build/deps.test
	@mkdir -p $(@D)
	$(call say,ALONE,$<)
	$(Q)printf '#include "%s"\n' $< | \
	    $(CC) $(CPPFLAGS) $(CFLAGS) -Werror -fsyntax-only -MF $@.d -MT $@ -x c -
	@touch $@

# The host device has kernels for ARM: every file of the program compiles there without a warning. Headers of libraries are those
# of this machine.
ifneq ($(filter lint lint-arm,$(MAKECMDGOALS)),)
ARM_CC := $(shell command -v aarch64-linux-gnu-gcc)
ON_ARM := $(if $(ARM_CC),$(patsubst %.c,$(BUILD)/arm/%,$(LIB_SRC) $(API_SRC) $(CLI_SRC)))
endif
lint-arm: $(ON_ARM)
	$(if $(ON_ARM),,@echo 'duet: aarch64-linux-gnu-gcc is not installed, nothing is compiled for ARM' >&2)

$(BUILD)/arm/%: %.c $(BUILD)/flags | build/deps.build
	@mkdir -p $(@D)
	$(call say,ARM,$<)
	$(Q)$(ARM_CC) $(CPPFLAGS) $(CFLAGS) -idirafter /usr/include -Werror -fsyntax-only -MF $@.d -MT $@ $<
	@touch $@

# Each layer links with the layers below it and no other: its objects name nothing that lies above. The order is that of
# docs/ARCHITECTURE.md.
LAYERS := base graphs model round sampler target draft verify engine lib
lint-links: $(LIB_OBJ) $(API_OBJ)
	@mkdir -p $(BUILD)/links
	@echo 'int main(void) { return 0; }' > $(BUILD)/links/main.c
	@layers=; for layer in $(LAYERS); do \
	    layers="$$layers $$layer"; objects=; \
	    for l in $$layers; do objects="$$objects $$(printf '%s\n' $(LIB_OBJ) $(API_OBJ) | grep "^$(BUILD)/$$l/")"; done; \
	    $(CC) $(CFLAGS) $(LDFLAGS) $(BUILD)/links/main.c $$objects $(LDLIBS) -o $(BUILD)/links/$$layer || \
	        { echo "duet: $$layer does not link without the layers above it" >&2; exit 1; }; \
	done

# --- install ----------------------------------------------------------------------------------------------

MAN := $(BUILD)/duet.1

$(MAN): $(BUILD)/duet
	$(call say,MAN,$@)
	$(Q)$< --man > $@

# An installed tree may be moved, so duet.pc knows where it is by its own place.
define PC
prefix=$${pcfiledir}/../..
libdir=$${prefix}/lib
includedir=$${prefix}/include

Name: duet
Description: speculative decoding
Version: $(VERSION)
Libs: -L$${libdir} -lduet
Cflags: -I$${includedir}
endef
$(BUILD)/duet.pc: $(BUILD)/flags
	$(file > $@,$(PC))

TREE  = $(DESTDIR)$(PREFIX)
COMPLETIONS := $(addprefix $(BUILD)/completion.,bash zsh fish)
$(COMPLETIONS): $(BUILD)/completion.%: $(BUILD)/duet
	$(Q)$< --completion $* > $@

PARTS := $(BUILD)/duet $(SO) lib/duet.h $(BUILD)/duet.pc $(MAN) $(COMPLETIONS)
define INSTALL
	$(call say,INSTALL,$(TREE))
	$(Q)install -D -m 755 $(BUILD)/duet $(TREE)/bin/duet
	$(Q)install -D -m 644 $(SO) $(TREE)/lib/$(notdir $(SO))
	$(Q)ln -sfn $(notdir $(SO)) $(TREE)/lib/$(SONAME) && ln -sfn $(SONAME) $(TREE)/lib/libduet.so
	$(Q)install -D -m 644 lib/duet.h $(TREE)/include/duet/duet.h
	$(Q)install -D -m 644 $(BUILD)/duet.pc $(TREE)/lib/pkgconfig/duet.pc
	$(Q)install -D -m 644 $(MAN) $(TREE)/share/man/man1/duet.1
	$(Q)install -D -m 644 $(BUILD)/completion.bash $(TREE)/share/bash-completion/completions/duet
	$(Q)install -D -m 644 $(BUILD)/completion.zsh $(TREE)/share/zsh/site-functions/_duet
	$(Q)install -D -m 644 $(BUILD)/completion.fish $(TREE)/share/fish/vendor_completions.d/duet.fish
	$(Q)for f in $$(cd assets && find . -type f); do \
	    install -D -m 644 "assets/$$f" "$(TREE)/share/duet/$$f" || exit 1; \
	done
endef
install: $(PARTS)
	$(INSTALL)
	$(Q)test -n "$(DESTDIR)" || ldconfig 2>/dev/null || true

# The same for the suites that look at it.
$(INSTALLED)/done: TREE = $(INSTALLED)$(PREFIX)
$(INSTALLED)/done: $(PARTS) Makefile
	$(Q)rm -rf $(@D)
	$(INSTALL)
	@touch $@

# build/duet_VERSION_ARCH.deb, or duet-cuda where this build has the CUDA device.
PACKAGE := duet$(if $(filter cuda,$(DEVICE)),-cuda)
package:
	@tools/install-deps --check package
	$(Q)rm -rf $(BUILD)/package
	$(AGAIN) install DESTDIR=$(BUILD)/package PREFIX=/usr
	$(Q)tools/package $(BUILD)/package $(PACKAGE) $(VERSION) build/$(PACKAGE)_$(VERSION)_$$(dpkg --print-architecture).deb $(CUDA_LIB)

uninstall:
	rm -rf $(TREE)/bin/duet $(TREE)/lib/libduet.so* $(TREE)/include/duet $(TREE)/lib/pkgconfig/duet.pc \
	    $(TREE)/share/man/man1/duet.1 $(TREE)/share/duet $(TREE)/share/bash-completion/completions/duet \
	    $(TREE)/share/zsh/site-functions/_duet $(TREE)/share/fish/vendor_completions.d/duet.fish

clean:
	rm -rf build

help:
	@echo 'make              build the program: build/duet'
	@echo 'make demo         install what is missing, build, and answer assets/prompts.jsonl with the embedded pair'
	@echo 'make test         install what is missing, build, and run all tests; SUITE=check_NAME runs one suite'
	@echo 'make test-cuda    the tests of the CUDA device, on a GPU'
	@echo 'make test-emulated     some of them on the CPU, without one'
	@echo 'make test-cuda-sanitize   its small cases under compute-sanitizer'
	@echo 'make fidelity     speculation changes speed and nothing else: every claim with its figure'
	@echo 'make torture      one call at a time fails in runs of the program; SCENARIO=NAME, TORTURE=calls|sites for more or fewer'
	@echo 'make valgrind     the program and some suites under memcheck'
	@echo 'make mutate       small faults one at a time: does a test catch each?'
	@echo 'make fuzz         parsers under libFuzzer; FUZZ_SECONDS=60 for each, FUZZ=NAME for one (fuzz/README.md)'
	@echo 'make fuzz-replay  the inputs of fuzz/corpus, once'
	@echo 'make deps         install what is missing from the packages of Debian'
	@echo 'make install      to PREFIX (now $(PREFIX)), below DESTDIR; make uninstall removes it'
	@echo 'make package      a Debian package of this build, build/*.deb'
	@echo 'make lint         formatting, layering, headers that compile alone, files that compile for ARM, shell scripts'
	@echo 'make test-data    prepare large optional test data (see CONTRIBUTING.md)'
	@echo 'make clean        remove build/'
	@echo
	@echo 'MODE=release|debug|asan|tsan (now $(MODE))   DEVICE=host|cuda (now $(DEVICE))   CUDA_ARCH=sm_90 ...|all   CUDA_QUICK=1   CC=$(CC)   WERROR=1   V=1'

FORCE:
.PHONY: all deps test has-cuda build-program build-tests build-fidelity fidelity run-fidelity run-tests test-cuda build-tests-cuda run-tests-cuda test-emulated test-cuda-sanitize run-tests-cuda-sanitize torture run-torture valgrind run-valgrind mutate fuzz fuzz-replay run-fuzz test-data demo lint lint-format lint-shell lint-headers lint-arm lint-links install package uninstall clean help FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(LIB_OBJ:.o=.d) $(API_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(FUZZ_OBJ:.o=.d) $(CUDA_TEST_OBJ:.o=.d) $(FIDELITY_OBJ:.o=.d) $(ALONE:=.d) $(ON_ARM:=.d) $(wildcard $(BUILD)/bench/*.d)
