// SPDX-License-Identifier: GPL-2.0
/*
 * A QEMU plugin that writes down which memory the kernel of a guest reads and writes between marks.
 *
 * A program in the guest executes the marks (code.h). Until MARK_ARM nothing is watched but marks,
 * so that the guest boots at full speed. For each pair of MARK_START and MARK_STOP there is a file
 * for each virtual CPU, and one file is for all pairs:
 *   OUT.N.CPU    records, in the order of execution on that CPU
 *   OUT.blocks   a line for each block that ran, as in the files of trace.c
 *
 * A record is of a block that began, of an access to memory by an instruction of the latest block,
 * or of MARK_WAIT. sharing.py reads them. All code of user space is block 0, and its accesses are
 * left out. So are accesses to memory of user space, and those that an instruction repeats on the
 * same cache line while its block repeats itself. x86-64.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"

/* The part of QEMU's plugin interface, version 1, that is used here: Debian packages no header. */
#define EXPORT __attribute__((visibility("default")))

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
typedef struct qemu_info_t qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t idx);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
void qemu_plugin_reset(qemu_plugin_id_t id, void (*cb)(qemu_plugin_id_t id));
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*cb)(unsigned int vcpu, void *data),
					  enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*cb)(unsigned int vcpu, void *data),
					    enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      void (*cb)(unsigned int vcpu, qemu_plugin_meminfo_t info,
						 uint64_t vaddr, void *data),
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw rw,
				      void *data);

EXPORT int qemu_plugin_version = 1;

#define CPUS 2
#define LINE_SHIFT 6

enum what { BLOCK, WAIT, READ, WRITE };

struct record {
	uint64_t address;
	/* The number of a block, or the place of an instruction within it. */
	uint32_t number;
	uint16_t size;
	uint16_t what;
};

struct block;

struct insn {
	struct block *block;
	/* 1 + the line that each CPU accessed last. */
	uint64_t line[CPUS];
};

struct block {
	uint64_t start;
	uint32_t number;
	char kind;
	bool used, written;
	char *sizes;
	struct insn insns[];
};

struct cpu {
	/* Held for each record; the CPU that stops takes those of all. */
	pthread_mutex_t lock;
	struct record *records;
	size_t count, room;
	struct block *last;
	/* The latest block ran before, and has a record. */
	bool again;
};

static const char *out;
static qemu_plugin_id_t plugin;
static bool armed, recording;
static unsigned int section;
static struct cpu cpus[CPUS] = { [0 ... CPUS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER } };
/* CPUs translate side by side. */
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block **blocks;
static size_t block_count, block_room;
static FILE *block_file;

static void *must(void *p)
{
	if (!p) {
		perror("the plugin for cache lines");
		exit(1);
	}
	return p;
}

static bool is_kernel(uint64_t address)
{
	return address >> 63;
}

/* Takes the lock of a CPU if it has to record; returns NULL otherwise. */
static struct cpu *record_on(unsigned int vcpu)
{
	struct cpu *cpu = cpus + vcpu;

	if (!__atomic_load_n(&recording, __ATOMIC_RELAXED) || vcpu >= CPUS)
		return NULL;
	pthread_mutex_lock(&cpu->lock);
	if (__atomic_load_n(&recording, __ATOMIC_RELAXED))
		return cpu;
	pthread_mutex_unlock(&cpu->lock);
	return NULL;
}

static void add(struct cpu *cpu, struct record record)
{
	if (cpu->count == cpu->room) {
		cpu->room = cpu->room ? 2 * cpu->room : 1 << 16;
		cpu->records = must(realloc(cpu->records, cpu->room * sizeof(*cpu->records)));
	}
	cpu->records[cpu->count++] = record;
}

static void executed(unsigned int vcpu, void *data)
{
	struct cpu *cpu = record_on(vcpu);
	struct block *b = data;

	if (!cpu)
		return;
	cpu->again = cpu->last == b && b->kind == '-';
	if (!cpu->again) {
		b->used = true;
		cpu->last = b;
		add(cpu, (struct record){ .number = b->number, .what = BLOCK });
	}
	pthread_mutex_unlock(&cpu->lock);
}

static void accessed(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	struct insn *insn = data;
	uint64_t line = 1 + (address >> LINE_SHIFT);
	struct cpu *cpu;

	if (!is_kernel(address))
		return;
	cpu = record_on(vcpu);
	if (!cpu)
		return;
	/* The block's own record is missing if the recording began in the midst of it. */
	if (cpu->last == insn->block && !(cpu->again && insn->line[vcpu] == line)) {
		insn->line[vcpu] = line;
		add(cpu, (struct record){
			.address = address,
			.number = insn - insn->block->insns,
			.size = 1 << qemu_plugin_mem_size_shift(info),
			.what = qemu_plugin_mem_is_store(info) ? WRITE : READ,
		});
	}
	pthread_mutex_unlock(&cpu->lock);
}

static void start(unsigned int vcpu, void *data)
{
	if (recording)
		return;
	for (unsigned int i = 0; i < CPUS; i++) {
		cpus[i].count = 0;
		cpus[i].last = NULL;
	}
	__atomic_store_n(&recording, true, __ATOMIC_RELEASE);
}

static void waits(unsigned int vcpu, void *data)
{
	struct cpu *cpu = record_on(vcpu);

	if (!cpu)
		return;
	add(cpu, (struct record){ .what = WAIT });
	pthread_mutex_unlock(&cpu->lock);
}

static void write_blocks(void)
{
	pthread_mutex_lock(&blocks_lock);
	for (size_t i = 0; i < block_count; i++) {
		struct block *b = blocks[i];

		if (!b->used || b->written)
			continue;
		fprintf(block_file, "%" PRIu32 " %" PRIx64 " %c %s\n", b->number, b->start, b->kind,
			b->sizes);
		b->written = true;
	}
	pthread_mutex_unlock(&blocks_lock);
	fflush(block_file);
}

static void stop(unsigned int vcpu, void *data)
{
	if (!recording)
		return;
	__atomic_store_n(&recording, false, __ATOMIC_RELEASE);
	for (unsigned int i = 0; i < CPUS; i++) {
		struct cpu *cpu = cpus + i;
		char path[4096];
		FILE *f;

		snprintf(path, sizeof(path), "%s.%u.%u", out, section, i);
		f = must(fopen(path, "w"));
		pthread_mutex_lock(&cpu->lock);
		fwrite(cpu->records, sizeof(*cpu->records), cpu->count, f);
		pthread_mutex_unlock(&cpu->lock);
		fclose(f);
	}
	write_blocks();
	section++;
}

static struct block *add_block(uint64_t start, size_t n)
{
	struct block *b = must(calloc(1, sizeof(*b) + n * sizeof(b->insns[0])));

	b->start = start;
	b->sizes = must(calloc(1, n + 1));
	pthread_mutex_lock(&blocks_lock);
	if (block_count == block_room) {
		block_room = block_room ? 2 * block_room : 1 << 16;
		blocks = must(realloc(blocks, block_room * sizeof(*blocks)));
	}
	b->number = block_count;
	blocks[block_count++] = b;
	pthread_mutex_unlock(&blocks_lock);
	return b;
}

static void watch_marks(struct qemu_plugin_tb *tb);

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	uint64_t start = qemu_plugin_tb_vaddr(tb);
	size_t n = qemu_plugin_tb_n_insns(tb);
	struct block *b;

	if (!is_kernel(start)) {
		qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, QEMU_PLUGIN_CB_NO_REGS, blocks[0]);
		watch_marks(tb);
		return;
	}
	b = add_block(start, n);
	for (size_t i = 0; i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		size_t size = qemu_plugin_insn_size(insn);

		b->insns[i].block = b;
		b->sizes[i] = "0123456789abcdef"[size & 15];
		if (i + 1 == n)
			b->kind = kind_of(qemu_plugin_insn_data(insn), size);
		qemu_plugin_register_vcpu_mem_cb(insn, accessed, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_RW, b->insns + i);
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, QEMU_PLUGIN_CB_NO_REGS, b);
}

static void watch_accesses(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

/* Has QEMU translate all code again. */
static void arm(unsigned int vcpu, void *data)
{
	if (!armed)
		qemu_plugin_reset(plugin, watch_accesses);
	armed = true;
}

static void watch_marks(struct qemu_plugin_tb *tb)
{
	static void (*const marks[])(unsigned int, void *) = {
		[MARK_START] = start, [MARK_STOP] = stop, [MARK_ARM] = arm, [MARK_WAIT] = waits,
	};

	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		enum mark mark = mark_of(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));

		if (mark && mark < sizeof(marks) / sizeof(marks[0]))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, marks[mark],
							       QEMU_PLUGIN_CB_NO_REGS, NULL);
	}
}

static void only_marks(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	if (!is_kernel(qemu_plugin_tb_vaddr(tb)))
		watch_marks(tb);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	struct block *user;
	char path[4096];

	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "the only argument of the plugin for cache lines is out=PATH\n");
		return -1;
	}
	out = must(strdup(argv[0] + 4));
	plugin = id;
	snprintf(path, sizeof(path), "%s.blocks", out);
	block_file = must(fopen(path, "w"));
	/* Block 0 is all code of user space. */
	user = add_block(0, 1);
	user->kind = '-';
	user->sizes[0] = '1';
	qemu_plugin_register_vcpu_tb_trans_cb(id, only_marks);
	return 0;
}
