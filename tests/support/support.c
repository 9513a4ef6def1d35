#include "tests/support/support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *join(const char *root, const char *relative) {
    static char paths[4][4096];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, relative);
    return path;
}

const char *shared_path(const char *relative) {
    const char *root = getenv("DUET_SHARED");
    const char *path = join(root ? root : "../shared", relative);
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *asset_path(const char *relative) {
    return join("assets", relative);
}

const char *test_device(void) {
    const char *name = getenv("DUET_TEST_DEVICE");
    return name ? name : "host";
}

bool test_device_is_host(void) {
    return strcmp(test_device(), "host") == 0;
}

/* --- checkpoints -------------------------------------------------------------------------------------------- */

struct known {
    struct checkpoint *checkpoint;
    struct known *next;
};

static const struct checkpoint *find(struct known **list, const char *name,
                                     struct checkpoint *(*open)(const char *name)) {
    for (struct known *k = *list; k; k = k->next)
        if (strcmp(checkpoint_name(k->checkpoint), name) == 0) return k->checkpoint;
    struct known *k = malloc(sizeof *k);
    ck_assert_ptr_nonnull(k);
    *k = (struct known){open(name), *list};
    *list = k;
    return k->checkpoint;
}

const struct checkpoint *test_checkpoint(const char *dir) {
    static struct known *list;
    return find(&list, dir, checkpoint_open);
}

const struct checkpoint *test_shape(const char *shape) {
    static struct known *list;
    return find(&list, shape, checkpoint_open_shape);
}

bool test_is_small(void) {
    return SANITIZED || getenv("DUET_TEST_SMALL") != NULL;
}

void skip(const char *reason) {
    fprintf(stderr, "skipped: %s (%s)\n", tcase_name(), reason);
}

static char temp_root[64], temp_path[80];
static pid_t temp_owner;

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static void remove_temp(void) {
    if (temp_owner == getpid()) nftw(temp_root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *temp_dir(void) {
    static const char *its_test; /* the names that Check has stay where they are */
    static int made;
    bool is_new = its_test != tcase_name();
    if (temp_owner != getpid()) {
        snprintf(temp_root, sizeof temp_root, "/tmp/duet-test-XXXXXX");
        if (!mkdtemp(temp_root)) ck_abort_msg("cannot make %s", temp_root);
        temp_owner = getpid();
        atexit(remove_temp);
        is_new = true;
    }
    if (is_new) {
        its_test = tcase_name();
        snprintf(temp_path, sizeof temp_path, "%s/%d", temp_root, made++);
        if (mkdir(temp_path, 0700) != 0) ck_abort_msg("cannot make %s", temp_path);
    }
    return temp_path;
}
