/* The NIC of dcbnic.c: attributes of rtnetlink messages, read and written, and the record of what was set. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dcbnic.h"

/* ---- attributes, read ------------------------------------------------------------------------------------------------ */

bool attr_ok(const struct nlattr *a, int left)
{
	return left >= (int)sizeof(*a) && a->nla_len >= sizeof(*a) && a->nla_len <= left;
}

const struct nlattr *next_attr(const struct nlattr *a)
{
	return (const void *)((const char *)a + NLA_ALIGN(a->nla_len));
}

int type_of(const struct nlattr *a)
{
	return a->nla_type & NLA_TYPE_MASK;
}

const void *data_of(const struct nlattr *a)
{
	return (const char *)a + NLA_HDRLEN;
}

size_t size_of(const struct nlattr *a)
{
	return a->nla_len - NLA_HDRLEN;
}

uint8_t u8_of(const struct nlattr *a)
{
	return size_of(a) ? *(const uint8_t *)data_of(a) : 0;
}

uint32_t u32_of(const struct nlattr *a)
{
	uint32_t value = 0;

	if (size_of(a) >= sizeof(value))
		memcpy(&value, data_of(a), sizeof(value));
	return value;
}

const struct nlattr *find_attr(const struct nlattr *head, size_t length, int type)
{
	FOR_ATTRS(a, head, length)
		if (type_of(a) == type)
			return a;
	return NULL;
}

/* Copies a struct out of an attribute; refuses a short one, as the kernel's policy does. */
bool copy_struct(const struct nlattr *a, void *to, size_t size)
{
	if (size_of(a) < size)
		return false;
	memcpy(to, data_of(a), size);
	return true;
}

/* ---- attributes, written --------------------------------------------------------------------------------------------- */

struct nlattr *put(struct message *m, int type, const void *data, size_t size)
{
	struct nlattr *a = (void *)(m->buffer + m->length);

	if (m->length + NLA_HDRLEN + NLA_ALIGN(size) > sizeof(m->buffer))
		die("a reply that is too long");
	memset(a, 0, NLA_HDRLEN + NLA_ALIGN(size));
	a->nla_type = (uint16_t)type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + size);
	if (size)
		memcpy((char *)a + NLA_HDRLEN, data, size);
	m->length += (uint32_t)(NLA_HDRLEN + NLA_ALIGN(size));
	return a;
}

void put_u8(struct message *m, int type, int value)
{
	uint8_t octet = (uint8_t)value;

	put(m, type, &octet, 1);
}

struct nlattr *open_nest(struct message *m, int type)
{
	return put(m, type, NULL, 0);
}

void close_nest(struct message *m, struct nlattr *nest)
{
	nest->nla_len = (uint16_t)(m->buffer + m->length - (char *)nest);
}

/* ---- the record ------------------------------------------------------------------------------------------------------ */

static char line[8192];
static size_t line_length;

__attribute__((format(printf, 1, 2))) void say(const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(line + line_length, sizeof(line) - line_length, format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)n >= sizeof(line) - line_length)
		die("a record that is too long");
	line_length += (size_t)n;
}

void say_octets(const char *name, const uint8_t *values, int count)
{
	say(", \"%s\": [", name);
	for (int i = 0; i < count; i++)
		say(i ? ", %u" : "%u", values[i]);
	say("]");
}

void begin_record(const struct nic *nic, const char *command)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	line_length = 0;
	say("{\"time_ns\": %lld, \"ifname\": \"%s\", \"cmd\": \"%s\"", now.tv_sec * 1000000000ll + now.tv_nsec, nic->name, command);
}

void end_record(int result)
{
	say(", \"result\": %d}\n", result);
	if (record_fd >= 0 && write(record_fd, line, line_length) != (ssize_t)line_length)
		die("write DCBNIC_RECORD");
}
