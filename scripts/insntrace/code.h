/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Facts that both plugins read from the code of a guest: how a block ends, and the marks.
 *
 * A mark is a no-op with an operand of its own, which a measuring program executes. x86-64.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The number in a mark's operand. */
enum mark { NO_MARK, MARK_START, MARK_STOP, MARK_ARM, MARK_WAIT };

/* Returns the kind of a block's end, by its last instruction. */
static char kind_of(const uint8_t *code, size_t size)
{
	size_t i = 0;
	bool wide = false;

	while (i < size && strchr("\x66\x67\x2e\x36\x3e\x26\x64\x65\xf2\xf3", code[i]) && code[i])
		i++;
	if (i < size && (code[i] & 0xf0) == 0x40) {
		wide = code[i] & 8;
		i++;
	}
	if (i >= size)
		return '-';
	switch (code[i]) {
	case 0xe8:
		return 'c';
	case 0xc2:
	case 0xc3:
		return 'r';
	case 0xcf:
		return 'i';
	case 0xff:
		return i + 1 < size && (code[i + 1] >> 3 & 7) == 2 ? 'c' : '-';
	case 0x0f: /* sysret */
		return i + 1 < size && code[i + 1] == 0x07 && wide ? 'i' : '-';
	}
	return '-';
}

/* Returns the number of a mark; NO_MARK for any other instruction. */
static enum mark mark_of(const uint8_t *code, size_t size)
{
	static const uint8_t begin[] = { 0x0f, 0x1f, 0x84, 0x00 };
	static const char magic[] = "SDR"; /* 0x524453.. in the operand */

	if (size != 8 || memcmp(code, begin, 4) || memcmp(code + 5, magic, 3))
		return NO_MARK;
	return (enum mark)code[4];
}
