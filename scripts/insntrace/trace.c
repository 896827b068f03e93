// SPDX-License-Identifier: GPL-2.0
/*
 * A QEMU plugin that writes down which blocks of code a guest executes between two marks.
 *
 * rds-bench executes the marks around the operations it measures: no-ops with an operand of their
 * own. For each pair of marks there are two files:
 *   OUT.N.blocks  a line for each block: number, address, end, and a hexadecimal digit for the size
 *                 of each instruction. The end is c (a call), r (a return), i (the end of an
 *                 interrupt or a system call), or -.
 *   OUT.N.trace   pairs of 32-bit words: number of a block, and how often it ran in a row
 *
 * trace.py makes tables of them. One virtual CPU, x86-64.
 *
 * With count=FILE instead of out=OUT it writes only how many instructions there were, a line for
 * each pair of marks. That costs the guest little time, and takes no room.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"

/* The part of QEMU's plugin interface, version 1, that is used here: Debian packages no header. */
#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t idx);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*cb)(unsigned int vcpu, void *data),
					  enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, enum qemu_plugin_op op,
					      void *ptr, uint64_t imm);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int vcpu, void *data),
					    enum qemu_plugin_cb_flags flags, void *data);

EXPORT int qemu_plugin_version = 1;

struct block {
	uint64_t start;
	uint32_t number;
	char kind;
	bool used;
	char sizes[];
};

struct record {
	uint32_t number, times;
};

static struct block **blocks;
static size_t block_count, block_room;
static const char *out;
static FILE *trace;
static FILE *counts;
static uint64_t executed_insns, insns_at_start;
static struct record last;
static unsigned int section;

static void *must(void *p)
{
	if (!p) {
		perror("the profiler");
		exit(1);
	}
	return p;
}

static FILE *open_file(const char *suffix)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s.%u.%s", out, section, suffix);
	return must(fopen(path, "w"));
}

static void flush_record(void)
{
	if (last.times)
		fwrite(&last, sizeof(last), 1, trace);
	last.times = 0;
}

static void executed(unsigned int vcpu, void *data)
{
	struct block *b = data;

	if (!trace)
		return;
	b->used = true;
	if (last.times && last.number == b->number) {
		last.times++;
		return;
	}
	flush_record();
	last = (struct record){ b->number, 1 };
}

static void start(unsigned int vcpu, void *data)
{
	insns_at_start = executed_insns;
	if (!counts && !trace)
		trace = open_file("trace");
}

static void stop(unsigned int vcpu, void *data)
{
	FILE *f;

	if (counts) {
		fprintf(counts, "%" PRIu64 "\n", executed_insns - insns_at_start);
		fflush(counts);
	}
	if (!trace)
		return;
	flush_record();
	fclose(trace);
	trace = NULL;
	f = open_file("blocks");
	for (size_t i = 0; i < block_count; i++) {
		struct block *b = blocks[i];

		if (b->used)
			fprintf(f, "%" PRIu32 " %" PRIx64 " %c %s\n", b->number, b->start, b->kind,
				b->sizes);
		b->used = false;
	}
	fclose(f);
	section++;
}

/* A mark calls start or stop. */
static void watch_mark(struct qemu_plugin_insn *insn)
{
	enum mark mark = mark_of(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));

	if (mark == MARK_START || mark == MARK_STOP)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, mark == MARK_START ? start : stop,
						       QEMU_PLUGIN_CB_NO_REGS, NULL);
}

static void counted(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);

	for (size_t i = 0; i < n; i++)
		watch_mark(qemu_plugin_tb_get_insn(tb, i));
	qemu_plugin_register_vcpu_tb_exec_inline(tb, QEMU_PLUGIN_INLINE_ADD_U64, &executed_insns, n);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	struct block *b = must(calloc(1, sizeof(*b) + n + 1));

	if (block_count == block_room) {
		block_room = block_room ? 2 * block_room : 1 << 16;
		blocks = must(realloc(blocks, block_room * sizeof(*blocks)));
	}
	blocks[block_count] = b;
	b->number = block_count++;
	b->start = qemu_plugin_tb_vaddr(tb);
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const uint8_t *code = qemu_plugin_insn_data(insn);
		size_t size = qemu_plugin_insn_size(insn);

		b->sizes[i] = "0123456789abcdef"[size & 15];
		if (i + 1 == n)
			b->kind = kind_of(code, size);
		watch_mark(insn);
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, QEMU_PLUGIN_CB_NO_REGS, b);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	if (argc == 1 && !strncmp(argv[0], "count=", 6)) {
		counts = must(fopen(argv[0] + 6, "w"));
		qemu_plugin_register_vcpu_tb_trans_cb(id, counted);
		return 0;
	}
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "the profiler's only argument is out=PATH or count=FILE\n");
		return -1;
	}
	out = must(strdup(argv[0] + 4));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
