// SPDX-License-Identifier: GPL-2.0
/*
 * A QEMU plugin that counts when a guest runs a block of its kernel modules.
 *
 * The counters are in a file that the host has mapped, too (record.py). So it reads them at any
 * time, asks QEMU for nothing, and still has them when the machine was killed. map=PATH names the
 * file. The host makes it, with its first two words:
 *   word 0     MAGIC
 *   word 1     N, the number of blocks that there is room for
 *   word 2     the number of blocks that there are
 *   word 3     the number of blocks that found no room
 *   word 8...  N words: the address of each block
 *   then       N words: its counter
 *   then       N half-words of 32 bits: its size in bytes
 *
 * A block is a translation block of QEMU's: instructions from an entry to the first jump, call or
 * end of a page. Blocks outside of the modules' range get no code at all. A counter that has
 * changed says that the block ran, not how often: of two CPUs that count at once, one may count in
 * vain.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* The part of QEMU's plugin interface, version 1, that is used here: Debian packages no header. */
#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t idx);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, enum qemu_plugin_op op,
					      void *ptr, uint64_t imm);

EXPORT int qemu_plugin_version = 1;

#define MAGIC 0x31766f6362736472 /* "rdsbcov1" */
/* MODULES_VADDR without KASLR, which is the lower one, and MODULES_END. */
#define MODULES_START 0xffffffffa0000000
#define MODULES_END 0xffffffffff000000

enum { WORD_MAGIC, WORD_ROOM, WORD_COUNT, WORD_LOST, FIRST_WORD = 8 };

/* CPUs translate side by side. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *words, *starts, *counters;
static uint32_t *sizes;
/* A hash table of twice as many slots as there can be blocks: 1 + the index of each. */
static uint32_t *slots;
static size_t room;

/* The counter of a block, which QEMU may translate many times; NULL without room for it. */
static uint64_t *counter_of(uint64_t start, uint32_t size)
{
	size_t slot = (start * 0x9e3779b97f4a7c15 >> 20 ^ size) % (2 * room), i;

	for (; slots[slot]; slot = (slot + 1) % (2 * room)) {
		i = slots[slot] - 1;
		if (starts[i] == start && sizes[i] == size)
			return counters + i;
	}
	i = words[WORD_COUNT];
	if (i == room) {
		words[WORD_LOST]++;
		return NULL;
	}
	slots[slot] = i + 1;
	starts[i] = start;
	sizes[i] = size;
	counters[i] = 0;
	/* The host reads as many as this says. */
	__atomic_store_n(words + WORD_COUNT, i + 1, __ATOMIC_RELEASE);
	return counters + i;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t start = qemu_plugin_tb_vaddr(tb), *counter;
	struct qemu_plugin_insn *last;

	if (start < MODULES_START || start >= MODULES_END)
		return;
	last = qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1);
	pthread_mutex_lock(&lock);
	counter = counter_of(start, qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last) - start);
	pthread_mutex_unlock(&lock);
	if (counter)
		qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, counter, 1);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	struct stat st;
	int fd;

	if (argc != 1 || strncmp(argv[0], "map=", 4)) {
		fprintf(stderr, "the only argument of the plugin for coverage is map=PATH\n");
		return -1;
	}
	fd = open(argv[0] + 4, O_RDWR);
	if (fd < 0 || fstat(fd, &st)) {
		perror(argv[0] + 4);
		return -1;
	}
	words = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (words == MAP_FAILED) {
		perror(argv[0] + 4);
		return -1;
	}
	room = words[WORD_ROOM];
	if (words[WORD_MAGIC] != MAGIC || (uint64_t)st.st_size < (FIRST_WORD + 2 * room) * 8 + room * 4) {
		fprintf(stderr, "%s is no file for coverage\n", argv[0] + 4);
		return -1;
	}
	starts = words + FIRST_WORD;
	counters = starts + room;
	sizes = (uint32_t *)(counters + room);
	slots = calloc(2 * room, sizeof(*slots));
	if (!slots) {
		perror("the plugin for coverage");
		return -1;
	}
	/* A machine that hung at boot is started again with the same file. */
	words[WORD_COUNT] = words[WORD_LOST] = 0;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
