/* A NIC with Data Center Bridging for programs that ask rtnetlink for one: an LD_PRELOAD library, for tests only.
 *
 * A veth has no DCB operations, so the kernel answers RTM_GETDCB and RTM_SETDCB for it with EOPNOTSUPP and lldpad calls the
 * device not capable. This library takes those two requests, for interfaces that it is told of, before the kernel sees them,
 * and answers from memory as an adapter with eight traffic classes and host-managed DCBX (IEEE and CEE) would. All else goes
 * to the kernel untouched. Written from the kernel's public headers (linux/dcbnl.h, linux/rtnetlink.h) alone.
 *
 * How answers travel: netlink lets root send from one socket to another, so the reply is sent from a socket of the library's
 * own to the asking socket, and waits in that socket's real receive queue. Blocking, polling, peeking and truncation are then
 * the kernel's, and only the sender's address has to be put right (0, "the kernel") where a program reads it.
 *
 * Environment:
 *   DCBNIC_IFS     comma separated interfaces that have DCB
 *   DCBNIC_RECORD  file that gets one JSON line for each setting made (optional)
 *   DCBNIC_STATE   file that holds the adapters' registers, shared by all processes that name it (optional; default: own
 *                  memory). With it `dcb ets show dev IF` shows what lldpad has programmed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TCS 8
#define MAX_NICS 8
#define MAX_APPS 64
#define PERM_ADDR_LEN 32 /* what the kernel sends: MAX_ADDR_LEN octets, 0xff where there is no address */

struct priority_groups {
	uint8_t pgid[TCS], up_map[TCS], strict[TCS], bw_pct[TCS]; /* by traffic class */
	uint8_t group_pct[TCS];					  /* by priority group */
};

struct nic {
	char name[IFNAMSIZ];
	uint8_t state, pfc_state, dcbx, tcs_pg, tcs_pfc;
	uint8_t pfc[TCS];
	struct priority_groups tx, rx;
	struct ieee_ets ets;
	struct ieee_pfc ieee_pfc;
	struct ieee_maxrate maxrate;
	struct dcbnl_buffer buffer;
	uint8_t bcn_rp[TCS];
	uint32_t bcn[DCB_BCN_ATTR_MAX + 1];
	uint8_t feature[DCB_FEATCFG_ATTR_MAX + 1];
	uint32_t app_count;
	struct dcb_app app[MAX_APPS];
};

static ssize_t (*real_sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
static ssize_t (*real_sendmsg)(int, const struct msghdr *, int);
static ssize_t (*real_recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
static ssize_t (*real_recvmsg)(int, struct msghdr *, int);

static struct nic *nics; /* MAX_NICS of them; an empty name ends the list */
static int state_fd = -1, record_fd = -1, helper_fd = -1;
static uint32_t helper_pid;

/* ---- set up ---------------------------------------------------------------------------------------------------------- */

static void die(const char *what)
{
	fprintf(stderr, "dcbnic: %s: %s\n", what, strerror(errno));
	_exit(127);
}

static void lock(void)
{
	if (state_fd >= 0 && flock(state_fd, LOCK_EX) != 0)
		die("lock DCBNIC_STATE");
}

static void unlock(void)
{
	if (state_fd >= 0)
		flock(state_fd, LOCK_UN);
}

/* The adapter as it comes up: DCB off, one traffic class in use, strict, no PFC, capable of eight classes. */
static void reset_nic(struct nic *nic, const char *name)
{
	memset(nic, 0, sizeof(*nic));
	snprintf(nic->name, sizeof(nic->name), "%s", name);
	nic->dcbx = DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_IEEE;
	nic->tcs_pg = nic->tcs_pfc = TCS;
	nic->ets.ets_cap = TCS;
	nic->ieee_pfc.pfc_cap = TCS;
	for (int tc = 0; tc < TCS; tc++) {
		nic->tx.up_map[tc] = nic->rx.up_map[tc] = (uint8_t)(1u << tc);
		nic->tx.bw_pct[tc] = nic->rx.bw_pct[tc] = 100;
	}
}

__attribute__((constructor)) static void start(void)
{
	const char *names = getenv("DCBNIC_IFS"), *state = getenv("DCBNIC_STATE"), *record = getenv("DCBNIC_RECORD");
	size_t size = MAX_NICS * sizeof(struct nic);

	real_sendto = (ssize_t(*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "sendto");
	real_sendmsg = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
	real_recvfrom = (ssize_t(*)(int, void *, size_t, int, struct sockaddr *, socklen_t *))dlsym(RTLD_NEXT, "recvfrom");
	real_recvmsg = (ssize_t(*)(int, struct msghdr *, int))dlsym(RTLD_NEXT, "recvmsg");
	if (!names || !*names)
		return;
	if (state) {
		state_fd = open(state, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		if (state_fd < 0 || ftruncate(state_fd, (off_t)size) != 0)
			die(state);
	}
	nics = mmap(NULL, size, PROT_READ | PROT_WRITE, state ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, state_fd, 0);
	if (nics == MAP_FAILED)
		die("memory for the adapters");
	if (record) {
		record_fd = open(record, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (record_fd < 0)
			die(record);
	}
	lock();
	while (*names) {
		size_t length = strcspn(names, ",");
		char name[IFNAMSIZ] = "";
		int i = 0;

		memcpy(name, names, length < IFNAMSIZ ? length : IFNAMSIZ - 1);
		while (i < MAX_NICS && nics[i].name[0] && strcmp(nics[i].name, name) != 0)
			i++;
		if (i < MAX_NICS && !nics[i].name[0])
			reset_nic(&nics[i], name);
		names += length + (names[length] == ',');
	}
	unlock();
}

static struct nic *find_nic(const char *name)
{
	for (int i = 0; nics && i < MAX_NICS && nics[i].name[0]; i++)
		if (strcmp(nics[i].name, name) == 0)
			return &nics[i];
	return NULL;
}

/* ---- attributes, read ------------------------------------------------------------------------------------------------ */

#define FOR_ATTRS(a, head, head_len) \
	for (int left_ = (int)(head_len), once_ = 1; once_; once_ = 0) \
		for (const struct nlattr *a = (head); attr_ok(a, left_); left_ -= (int)NLA_ALIGN(a->nla_len), a = next_attr(a))

static bool attr_ok(const struct nlattr *a, int left)
{
	return left >= (int)sizeof(*a) && a->nla_len >= sizeof(*a) && a->nla_len <= left;
}

static const struct nlattr *next_attr(const struct nlattr *a)
{
	return (const void *)((const char *)a + NLA_ALIGN(a->nla_len));
}

static int type_of(const struct nlattr *a)
{
	return a->nla_type & NLA_TYPE_MASK;
}

static const void *data_of(const struct nlattr *a)
{
	return (const char *)a + NLA_HDRLEN;
}

static size_t size_of(const struct nlattr *a)
{
	return a->nla_len - NLA_HDRLEN;
}

static uint8_t u8_of(const struct nlattr *a)
{
	return size_of(a) ? *(const uint8_t *)data_of(a) : 0;
}

static uint32_t u32_of(const struct nlattr *a)
{
	uint32_t value = 0;

	if (size_of(a) >= sizeof(value))
		memcpy(&value, data_of(a), sizeof(value));
	return value;
}

static const struct nlattr *find_attr(const struct nlattr *head, size_t length, int type)
{
	FOR_ATTRS(a, head, length)
		if (type_of(a) == type)
			return a;
	return NULL;
}

/* Copies a struct out of an attribute; refuses a short one, as the kernel's policy does. */
static bool copy_struct(const struct nlattr *a, void *to, size_t size)
{
	if (size_of(a) < size)
		return false;
	memcpy(to, data_of(a), size);
	return true;
}

/* ---- attributes, written --------------------------------------------------------------------------------------------- */

struct message {
	uint32_t length;
	char buffer[8192];
};

static struct nlattr *put(struct message *m, int type, const void *data, size_t size)
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

static void put_u8(struct message *m, int type, int value)
{
	uint8_t octet = (uint8_t)value;

	put(m, type, &octet, 1);
}

static struct nlattr *open_nest(struct message *m, int type)
{
	return put(m, type, NULL, 0);
}

static void close_nest(struct message *m, struct nlattr *nest)
{
	nest->nla_len = (uint16_t)(m->buffer + m->length - (char *)nest);
}

/* ---- the record ------------------------------------------------------------------------------------------------------ */

static char line[8192];
static size_t line_length;

static __attribute__((format(printf, 1, 2))) void say(const char *format, ...)
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

static void say_octets(const char *name, const uint8_t *values, int count)
{
	say(", \"%s\": [", name);
	for (int i = 0; i < count; i++)
		say(i ? ", %u" : "%u", values[i]);
	say("]");
}

static void begin_record(const struct nic *nic, const char *command)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	line_length = 0;
	say("{\"time_ns\": %lld, \"ifname\": \"%s\", \"cmd\": \"%s\"", now.tv_sec * 1000000000ll + now.tv_nsec, nic->name, command);
}

static void end_record(int result)
{
	say(", \"result\": %d}\n", result);
	if (record_fd >= 0 && write(record_fd, line, line_length) != (ssize_t)line_length)
		die("write DCBNIC_RECORD");
}

/* ---- IEEE ------------------------------------------------------------------------------------------------------------ */

static void say_app(const struct dcb_app *app, bool first)
{
	say("%s{\"selector\": %u, \"protocol\": %u, \"priority\": %u}", first ? "" : ", ", app->selector, app->protocol, app->priority);
}

static int add_app(struct nic *nic, const struct dcb_app *app, bool replace)
{
	for (uint32_t i = 0; i < nic->app_count; i++) {
		struct dcb_app *old = &nic->app[i];

		if (old->selector != app->selector || old->protocol != app->protocol)
			continue;
		if (replace) { /* CEE: one entry for each protocol, priority map 0 removes it */
			if (app->priority)
				old->priority = app->priority;
			else
				*old = nic->app[--nic->app_count];
			return 0;
		}
		if (old->priority == app->priority)
			return -EEXIST;
	}
	if (replace && !app->priority)
		return 0;
	if (nic->app_count == MAX_APPS)
		return -ENOMEM;
	nic->app[nic->app_count++] = *app;
	return 0;
}

static int remove_app(struct nic *nic, const struct dcb_app *app)
{
	for (uint32_t i = 0; i < nic->app_count; i++)
		if (memcmp(&nic->app[i], app, sizeof(*app)) == 0) {
			nic->app[i] = nic->app[--nic->app_count];
			return 0;
		}
	return -ENOENT;
}

static int ieee_apps(struct nic *nic, const struct nlattr *table, bool delete)
{
	int result = 0;
	bool first = true;

	say(", \"app\": [");
	FOR_ATTRS(a, data_of(table), size_of(table)) {
		struct dcb_app app;
		int error;

		if (type_of(a) != DCB_ATTR_IEEE_APP)
			continue;
		if (!copy_struct(a, &app, sizeof(app)))
			error = -EINVAL;
		else {
			say_app(&app, first);
			first = false;
			error = delete ? remove_app(nic, &app) : add_app(nic, &app, false);
		}
		if (error && !result)
			result = error;
	}
	say("]");
	return result;
}

static void ieee_change(struct nic *nic, const struct nlattr *nest, struct message *m, bool delete)
{
	int result = 0;

	begin_record(nic, delete ? "IEEE_DEL" : "IEEE_SET");
	/* An adapter that is in CEE mode refuses: lldpad must have chosen the mode first (DCB_CMD_SDCBX). */
	if (!nest || !(nic->dcbx & DCB_CAP_DCBX_VER_IEEE))
		result = -EINVAL;
	else
		FOR_ATTRS(a, data_of(nest), size_of(nest)) {
			int error = 0;

			if (type_of(a) == DCB_ATTR_IEEE_APP_TABLE)
				error = ieee_apps(nic, a, delete);
			else if (delete)
				error = -EINVAL;
			else if (type_of(a) == DCB_ATTR_IEEE_ETS && copy_struct(a, &nic->ets, sizeof(nic->ets))) {
				say(", \"ets\": {\"willing\": %u, \"ets_cap\": %u, \"cbs\": %u", nic->ets.willing, nic->ets.ets_cap, nic->ets.cbs);
				say_octets("tc_tx_bw", nic->ets.tc_tx_bw, TCS);
				say_octets("tc_rx_bw", nic->ets.tc_rx_bw, TCS);
				say_octets("tc_tsa", nic->ets.tc_tsa, TCS);
				say_octets("prio_tc", nic->ets.prio_tc, TCS);
				say_octets("tc_reco_bw", nic->ets.tc_reco_bw, TCS);
				say_octets("tc_reco_tsa", nic->ets.tc_reco_tsa, TCS);
				say_octets("reco_prio_tc", nic->ets.reco_prio_tc, TCS);
				say("}");
				nic->ets.ets_cap = TCS; /* read only in an adapter */
			} else if (type_of(a) == DCB_ATTR_IEEE_PFC && copy_struct(a, &nic->ieee_pfc, sizeof(nic->ieee_pfc))) {
				say(", \"pfc\": {\"pfc_cap\": %u, \"pfc_en\": %u, \"mbc\": %u, \"delay\": %u}", nic->ieee_pfc.pfc_cap,
				    nic->ieee_pfc.pfc_en, nic->ieee_pfc.mbc, nic->ieee_pfc.delay);
				nic->ieee_pfc.pfc_cap = TCS;
			} else if (type_of(a) == DCB_ATTR_IEEE_MAXRATE && copy_struct(a, &nic->maxrate, sizeof(nic->maxrate))) {
				say(", \"maxrate_kbps\": [");
				for (int tc = 0; tc < TCS; tc++)
					say(tc ? ", %llu" : "%llu", (unsigned long long)nic->maxrate.tc_maxrate[tc]);
				say("]");
			} else if (type_of(a) != DCB_ATTR_DCB_BUFFER || !copy_struct(a, &nic->buffer, sizeof(nic->buffer)))
				error = -EOPNOTSUPP;
			if (error && !result)
				result = error;
		}
	end_record(result);
	put_u8(m, DCB_ATTR_IEEE, result);
}

static void ieee_get(const struct nic *nic, struct message *m)
{
	struct nlattr *nest, *table;

	put(m, DCB_ATTR_IFNAME, nic->name, strlen(nic->name) + 1);
	nest = open_nest(m, DCB_ATTR_IEEE);
	put(m, DCB_ATTR_IEEE_ETS, &nic->ets, sizeof(nic->ets));
	put(m, DCB_ATTR_IEEE_MAXRATE, &nic->maxrate, sizeof(nic->maxrate));
	put(m, DCB_ATTR_IEEE_PFC, &nic->ieee_pfc, sizeof(nic->ieee_pfc));
	put(m, DCB_ATTR_DCB_BUFFER, &nic->buffer, sizeof(nic->buffer));
	table = open_nest(m, DCB_ATTR_IEEE_APP_TABLE);
	for (uint32_t i = 0; i < nic->app_count; i++)
		put(m, DCB_ATTR_IEEE_APP, &nic->app[i], sizeof(nic->app[i]));
	close_nest(m, table);
	/* No peer attributes: an adapter has those only where it runs DCBX itself (DCB_CAP_DCBX_LLD_MANAGED). */
	close_nest(m, nest);
	put_u8(m, DCB_ATTR_DCBX, nic->dcbx);
}

/* ---- CEE ------------------------------------------------------------------------------------------------------------- */

static uint8_t *tc_parameter(struct priority_groups *groups, int type, int tc)
{
	switch (type) {
	case DCB_TC_ATTR_PARAM_PGID:
		return &groups->pgid[tc];
	case DCB_TC_ATTR_PARAM_UP_MAPPING:
		return &groups->up_map[tc];
	case DCB_TC_ATTR_PARAM_STRICT_PRIO:
		return &groups->strict[tc];
	case DCB_TC_ATTR_PARAM_BW_PCT:
		return &groups->bw_pct[tc];
	default:
		return NULL;
	}
}

/* Indices first..last that an attribute of a numbered set means: one of them, or, for the set's "all" attribute, all. */
static bool range_of(int type, int zero, int all, int *first, int *last)
{
	if (type == all) {
		*first = 0;
		*last = TCS - 1;
	} else
		*first = *last = type - zero;
	return *first >= 0 && *first < TCS;
}

static void pg_set(struct nic *nic, struct priority_groups *groups, const struct nlattr *nest, struct message *m, const char *name)
{
	int first, last, result = nest ? 0 : -EINVAL;

	begin_record(nic, name);
	if (nest)
		FOR_ATTRS(a, data_of(nest), size_of(nest)) {
			if (range_of(type_of(a), DCB_PG_ATTR_TC_0, DCB_PG_ATTR_TC_ALL, &first, &last)) {
				FOR_ATTRS(p, data_of(a), size_of(a))
					for (int tc = first; tc <= last; tc++) {
						uint8_t *value = tc_parameter(groups, type_of(p), tc);

						if (value && u8_of(p) != DCB_ATTR_VALUE_UNDEFINED)
							*value = u8_of(p);
					}
			} else if (range_of(type_of(a), DCB_PG_ATTR_BW_ID_0, DCB_PG_ATTR_BW_ID_ALL, &first, &last))
				for (int group = first; group <= last; group++)
					groups->group_pct[group] = u8_of(a);
		}
	say_octets("pgid", groups->pgid, TCS);
	say_octets("up_map", groups->up_map, TCS);
	say_octets("strict", groups->strict, TCS);
	say_octets("bw_pct", groups->bw_pct, TCS);
	say_octets("group_pct", groups->group_pct, TCS);
	end_record(result);
	put_u8(m, DCB_ATTR_PG_CFG, result);
}

static int pg_get(struct priority_groups *groups, const struct nlattr *nest, struct message *m)
{
	struct nlattr *reply;
	int first, last;

	if (!nest)
		return -EINVAL;
	reply = open_nest(m, DCB_ATTR_PG_CFG);
	FOR_ATTRS(a, data_of(nest), size_of(nest)) {
		if (range_of(type_of(a), DCB_PG_ATTR_TC_0, DCB_PG_ATTR_TC_ALL, &first, &last)) {
			bool all = find_attr(data_of(a), size_of(a), DCB_TC_ATTR_PARAM_ALL) != NULL;

			for (int tc = first; tc <= last; tc++) {
				struct nlattr *one = open_nest(m, DCB_PG_ATTR_TC_0 + tc);

				for (int type = DCB_TC_ATTR_PARAM_PGID; type < DCB_TC_ATTR_PARAM_ALL; type++)
					if (all || find_attr(data_of(a), size_of(a), type))
						put_u8(m, type, *tc_parameter(groups, type, tc));
				close_nest(m, one);
			}
		} else if (range_of(type_of(a), DCB_PG_ATTR_BW_ID_0, DCB_PG_ATTR_BW_ID_ALL, &first, &last))
			for (int group = first; group <= last; group++)
				put_u8(m, DCB_PG_ATTR_BW_ID_0 + group, groups->group_pct[group]);
	}
	close_nest(m, reply);
	return 0;
}

static void pfc_set(struct nic *nic, const struct nlattr *nest, struct message *m)
{
	int first, last, result = nest ? 0 : -EINVAL;

	begin_record(nic, "PFC_SCFG");
	if (nest)
		FOR_ATTRS(a, data_of(nest), size_of(nest))
			if (range_of(type_of(a), DCB_PFC_UP_ATTR_0, DCB_PFC_UP_ATTR_ALL, &first, &last))
				for (int priority = first; priority <= last; priority++)
					nic->pfc[priority] = u8_of(a);
	say_octets("pfc", nic->pfc, TCS);
	end_record(result);
	put_u8(m, DCB_ATTR_PFC_CFG, result);
}

static int pfc_get(const struct nic *nic, const struct nlattr *nest, struct message *m)
{
	struct nlattr *reply;
	int first, last;

	if (!nest)
		return -EINVAL;
	reply = open_nest(m, DCB_ATTR_PFC_CFG);
	FOR_ATTRS(a, data_of(nest), size_of(nest))
		if (range_of(type_of(a), DCB_PFC_UP_ATTR_0, DCB_PFC_UP_ATTR_ALL, &first, &last))
			for (int priority = first; priority <= last; priority++)
				put_u8(m, DCB_PFC_UP_ATTR_0 + priority, nic->pfc[priority]);
	close_nest(m, reply);
	return 0;
}

static int cee_app(struct nic *nic, const struct nlattr *nest, struct message *m, bool set)
{
	struct dcb_app app = {0};
	struct nlattr *reply;
	int result;

	if (!nest)
		return -EINVAL;
	FOR_ATTRS(a, data_of(nest), size_of(nest)) {
		if (type_of(a) == DCB_APP_ATTR_IDTYPE)
			app.selector = u8_of(a);
		else if (type_of(a) == DCB_APP_ATTR_PRIORITY)
			app.priority = u8_of(a);
		else if (type_of(a) == DCB_APP_ATTR_ID)
			copy_struct(a, &app.protocol, sizeof(app.protocol));
	}
	if (app.selector > DCB_APP_IDTYPE_PORTNUM)
		return -EINVAL;
	if (set) {
		begin_record(nic, "SAPP");
		say(", \"app\": [");
		say_app(&app, true);
		say("]");
		result = add_app(nic, &app, true);
		end_record(result);
		put_u8(m, DCB_ATTR_APP, result);
		return 0;
	}
	for (uint32_t i = 0; i < nic->app_count; i++)
		if (nic->app[i].selector == app.selector && nic->app[i].protocol == app.protocol)
			app.priority = nic->app[i].priority;
	reply = open_nest(m, DCB_ATTR_APP);
	put_u8(m, DCB_APP_ATTR_IDTYPE, app.selector);
	put(m, DCB_APP_ATTR_ID, &app.protocol, sizeof(app.protocol));
	put_u8(m, DCB_APP_ATTR_PRIORITY, app.priority);
	close_nest(m, reply);
	return 0;
}

static int bcn(struct nic *nic, const struct nlattr *nest, struct message *m, bool set)
{
	struct nlattr *reply;
	int first, last;

	if (!nest)
		return -EINVAL;
	if (set)
		begin_record(nic, "BCN_SCFG");
	reply = set ? NULL : open_nest(m, DCB_ATTR_BCN);
	FOR_ATTRS(a, data_of(nest), size_of(nest)) {
		int type = type_of(a);

		if (range_of(type, DCB_BCN_ATTR_RP_0, DCB_BCN_ATTR_RP_ALL, &first, &last))
			for (int i = first; i <= last; i++) {
				if (set)
					nic->bcn_rp[i] = u8_of(a);
				else
					put_u8(m, DCB_BCN_ATTR_RP_0 + i, nic->bcn_rp[i]);
			}
		else if (set && type >= DCB_BCN_ATTR_BCNA_0 && type < DCB_BCN_ATTR_ALL)
			nic->bcn[type] = u32_of(a);
		else
			for (int t = DCB_BCN_ATTR_BCNA_0; !set && t < DCB_BCN_ATTR_ALL; t++)
				if (type == t || type == DCB_BCN_ATTR_ALL)
					put(m, t, &nic->bcn[t], sizeof(nic->bcn[t]));
	}
	if (set) {
		say_octets("rp", nic->bcn_rp, TCS);
		end_record(0);
		put_u8(m, DCB_ATTR_BCN, 0);
	} else
		close_nest(m, reply);
	return 0;
}

static void cee_get(struct nic *nic, struct message *m)
{
	static const int commands[] = {DCB_ATTR_CEE_TX_PG, DCB_ATTR_CEE_RX_PG};
	struct nlattr *nest, *part;

	put(m, DCB_ATTR_IFNAME, nic->name, strlen(nic->name) + 1);
	nest = open_nest(m, DCB_ATTR_CEE);
	for (int direction = 0; direction < 2; direction++) {
		struct priority_groups *groups = direction ? &nic->rx : &nic->tx;

		part = open_nest(m, commands[direction]);
		for (int tc = 0; tc < TCS; tc++) {
			struct nlattr *one = open_nest(m, DCB_PG_ATTR_TC_0 + tc);

			for (int type = DCB_TC_ATTR_PARAM_PGID; type < DCB_TC_ATTR_PARAM_ALL; type++)
				put_u8(m, type, *tc_parameter(groups, type, tc));
			close_nest(m, one);
		}
		for (int group = 0; group < TCS; group++)
			put_u8(m, DCB_PG_ATTR_BW_ID_0 + group, groups->group_pct[group]);
		close_nest(m, part);
	}
	part = open_nest(m, DCB_ATTR_CEE_PFC);
	for (int priority = 0; priority < TCS; priority++)
		put_u8(m, DCB_PFC_UP_ATTR_0 + priority, nic->pfc[priority]);
	close_nest(m, part);
	part = open_nest(m, DCB_ATTR_CEE_APP_TABLE);
	for (uint32_t i = 0; i < nic->app_count; i++)
		put(m, DCB_ATTR_CEE_APP, &nic->app[i], sizeof(nic->app[i]));
	close_nest(m, part);
	close_nest(m, nest);
	put_u8(m, DCB_ATTR_DCBX, nic->dcbx);
}

/* ---- the small commands ---------------------------------------------------------------------------------------------- */

static void set_octet(struct nic *nic, const char *command, const char *name, uint8_t *to, int value, int attribute, int result,
		      struct message *m)
{
	if (!result)
		*to = (uint8_t)value;
	begin_record(nic, command);
	say(", \"%s\": %d", name, value);
	end_record(result);
	put_u8(m, attribute, result);
}

/* What the adapter can do, by DCB_CAP_ATTR_*. Class counts are bit maps: 0x80 is "eight". */
static const uint8_t capability[DCB_CAP_ATTR_MAX + 1] = {
	[DCB_CAP_ATTR_PG] = 1,
	[DCB_CAP_ATTR_PFC] = 1,
	[DCB_CAP_ATTR_UP2TC] = 1,
	[DCB_CAP_ATTR_PG_TCS] = 0x80,
	[DCB_CAP_ATTR_PFC_TCS] = 0x80,
	[DCB_CAP_ATTR_GSP] = 1,
	[DCB_CAP_ATTR_BCN] = 0,
	[DCB_CAP_ATTR_DCBX] = DCB_CAP_DCBX_HOST | DCB_CAP_DCBX_VER_CEE | DCB_CAP_DCBX_VER_IEEE,
};

/* Replies with a nest that holds those of `values` (indices first..last) that the request's nest asks for. */
static int get_octets(const struct nlattr *nest, struct message *m, int type, int all, const uint8_t *values, int first, int last)
{
	struct nlattr *reply;

	if (!nest)
		return -EINVAL;
	reply = open_nest(m, type);
	for (int i = first; i <= last; i++)
		if (find_attr(data_of(nest), size_of(nest), i) || find_attr(data_of(nest), size_of(nest), all))
			put_u8(m, i, values[i]);
	close_nest(m, reply);
	return 0;
}

static int set_numtcs(struct nic *nic, const struct nlattr *nest, struct message *m)
{
	int result = 0;

	if (!nest)
		return -EINVAL;
	FOR_ATTRS(a, data_of(nest), size_of(nest))
		if (u8_of(a) < 1 || u8_of(a) > TCS)
			result = -EINVAL;
		else if (type_of(a) == DCB_NUMTCS_ATTR_PG)
			nic->tcs_pg = u8_of(a);
		else if (type_of(a) == DCB_NUMTCS_ATTR_PFC)
			nic->tcs_pfc = u8_of(a);
	begin_record(nic, "SNUMTCS");
	say(", \"pg\": %u, \"pfc\": %u", nic->tcs_pg, nic->tcs_pfc);
	end_record(result);
	put_u8(m, DCB_ATTR_NUMTCS, result);
	return 0;
}

static int set_features(struct nic *nic, const struct nlattr *nest, struct message *m)
{
	if (!nest)
		return -EINVAL;
	FOR_ATTRS(a, data_of(nest), size_of(nest))
		if (type_of(a) >= DCB_FEATCFG_ATTR_PG && type_of(a) <= DCB_FEATCFG_ATTR_APP)
			nic->feature[type_of(a)] = u8_of(a);
	begin_record(nic, "SFEATCFG");
	say_octets("feature", nic->feature + DCB_FEATCFG_ATTR_PG, 3);
	end_record(0);
	put_u8(m, DCB_ATTR_FEATCFG, 0);
	return 0;
}

/* The driver's rule for modes: DCBX is the host's, and speaks exactly one of the two dialects. */
static int mode_error(int mode)
{
	int dialects = mode & (DCB_CAP_DCBX_VER_CEE | DCB_CAP_DCBX_VER_IEEE);

	return mode & DCB_CAP_DCBX_LLD_MANAGED || !(mode & DCB_CAP_DCBX_HOST) ||
	       dialects == (DCB_CAP_DCBX_VER_CEE | DCB_CAP_DCBX_VER_IEEE);
}

static void put_permanent_address(const struct nic *nic, struct message *m)
{
	uint8_t address[PERM_ADDR_LEN];
	struct ifreq request = {0};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	memset(address, 0xff, sizeof(address));
	memcpy(request.ifr_name, nic->name, IFNAMSIZ);
	if (fd >= 0 && ioctl(fd, SIOCGIFHWADDR, &request) == 0)
		memcpy(address, request.ifr_hwaddr.sa_data, 6);
	if (fd >= 0)
		close(fd);
	put(m, DCB_ATTR_PERM_HWADDR, address, sizeof(address));
}

/* Carries out one request. Returns 0 with the reply's attributes appended, or a negative errno. */
static int answer(struct nic *nic, int command, const struct nlattr *head, size_t length, struct message *m)
{
#define ATTR(type) find_attr(head, length, type)
#define VALUE(type) (ATTR(type) ? u8_of(ATTR(type)) : -1)
	const uint8_t numtcs[] = {[DCB_NUMTCS_ATTR_PG] = nic->tcs_pg, [DCB_NUMTCS_ATTR_PFC] = nic->tcs_pfc};
	int value;

	switch (command) {
	case DCB_CMD_GSTATE:
		put_u8(m, DCB_ATTR_STATE, nic->state);
		return 0;
	case DCB_CMD_SSTATE:
		if ((value = VALUE(DCB_ATTR_STATE)) < 0)
			return -EINVAL;
		set_octet(nic, "SSTATE", "state", &nic->state, value != 0, DCB_ATTR_STATE, 0, m);
		return 0;
	case DCB_CMD_PFC_GSTATE:
		put_u8(m, DCB_ATTR_PFC_STATE, nic->pfc_state);
		return 0;
	case DCB_CMD_PFC_SSTATE:
		if ((value = VALUE(DCB_ATTR_PFC_STATE)) < 0)
			return -EINVAL;
		set_octet(nic, "PFC_SSTATE", "pfc_state", &nic->pfc_state, value != 0, DCB_ATTR_PFC_STATE, 0, m);
		return 0;
	case DCB_CMD_GDCBX:
		put_u8(m, DCB_ATTR_DCBX, nic->dcbx);
		return 0;
	case DCB_CMD_SDCBX:
		if ((value = VALUE(DCB_ATTR_DCBX)) < 0)
			return -EINVAL;
		set_octet(nic, "SDCBX", "dcbx", &nic->dcbx, value, DCB_ATTR_DCBX, mode_error(value), m);
		return 0;
	case DCB_CMD_SET_ALL:
		begin_record(nic, "SET_ALL");
		end_record(0);
		put_u8(m, DCB_ATTR_SET_ALL, 0);
		return 0;
	case DCB_CMD_GPERM_HWADDR:
		put_permanent_address(nic, m);
		return 0;
	case DCB_CMD_GCAP:
		return get_octets(ATTR(DCB_ATTR_CAP), m, DCB_ATTR_CAP, DCB_CAP_ATTR_ALL, capability, DCB_CAP_ATTR_PG,
				  DCB_CAP_ATTR_DCBX);
	case DCB_CMD_GNUMTCS:
		return get_octets(ATTR(DCB_ATTR_NUMTCS), m, DCB_ATTR_NUMTCS, DCB_NUMTCS_ATTR_ALL, numtcs, DCB_NUMTCS_ATTR_PG,
				  DCB_NUMTCS_ATTR_PFC);
	case DCB_CMD_SNUMTCS:
		return set_numtcs(nic, ATTR(DCB_ATTR_NUMTCS), m);
	case DCB_CMD_GFEATCFG:
		return get_octets(ATTR(DCB_ATTR_FEATCFG), m, DCB_ATTR_FEATCFG, DCB_FEATCFG_ATTR_ALL, nic->feature,
				  DCB_FEATCFG_ATTR_PG, DCB_FEATCFG_ATTR_APP);
	case DCB_CMD_SFEATCFG:
		return set_features(nic, ATTR(DCB_ATTR_FEATCFG), m);
	case DCB_CMD_PGTX_GCFG:
		return pg_get(&nic->tx, ATTR(DCB_ATTR_PG_CFG), m);
	case DCB_CMD_PGRX_GCFG:
		return pg_get(&nic->rx, ATTR(DCB_ATTR_PG_CFG), m);
	case DCB_CMD_PGTX_SCFG:
		pg_set(nic, &nic->tx, ATTR(DCB_ATTR_PG_CFG), m, "PGTX_SCFG");
		return 0;
	case DCB_CMD_PGRX_SCFG:
		pg_set(nic, &nic->rx, ATTR(DCB_ATTR_PG_CFG), m, "PGRX_SCFG");
		return 0;
	case DCB_CMD_PFC_GCFG:
		return pfc_get(nic, ATTR(DCB_ATTR_PFC_CFG), m);
	case DCB_CMD_PFC_SCFG:
		pfc_set(nic, ATTR(DCB_ATTR_PFC_CFG), m);
		return 0;
	case DCB_CMD_GAPP:
	case DCB_CMD_SAPP:
		return cee_app(nic, ATTR(DCB_ATTR_APP), m, command == DCB_CMD_SAPP);
	case DCB_CMD_BCN_GCFG:
	case DCB_CMD_BCN_SCFG:
		return bcn(nic, ATTR(DCB_ATTR_BCN), m, command == DCB_CMD_BCN_SCFG);
	case DCB_CMD_IEEE_SET:
	case DCB_CMD_IEEE_DEL:
		ieee_change(nic, ATTR(DCB_ATTR_IEEE), m, command == DCB_CMD_IEEE_DEL);
		return 0;
	case DCB_CMD_IEEE_GET:
		ieee_get(nic, m);
		return 0;
	case DCB_CMD_CEE_GET:
		cee_get(nic, m);
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

/* ---- netlink --------------------------------------------------------------------------------------------------------- */

static uint32_t port_of(int fd)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK};
	socklen_t size = sizeof(address);

	if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 || address.nl_pid == 0) {
		address = (struct sockaddr_nl){.nl_family = AF_NETLINK}; /* nl_pid 0: the kernel chooses */
		if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
			die("bind the asking socket");
		size = sizeof(address);
		if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
			die("port of the asking socket");
	}
	return address.nl_pid;
}

static void deliver(uint32_t port, struct nlmsghdr *header)
{
	struct sockaddr_nl to = {.nl_family = AF_NETLINK, .nl_pid = port};

	if (helper_fd < 0) {
		helper_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
		if (helper_fd < 0)
			die("helper socket");
		helper_pid = port_of(helper_fd);
	}
	header->nlmsg_pid = port;
	/* Never waits: a program that does not read its replies loses them, as it would with the kernel. */
	if (real_sendto(helper_fd, header, header->nlmsg_len, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EAGAIN)
		die("deliver a reply");
}

static void acknowledge(uint32_t port, const struct nlmsghdr *request, int error)
{
	struct {
		struct nlmsghdr header;
		struct nlmsgerr body;
		char rest[1024];
	} reply = {0};
	/* A refusal quotes the whole request, an acknowledgement only its header. */
	size_t quoted = error ? request->nlmsg_len - sizeof(*request) : 0;

	if (quoted > sizeof(reply.rest))
		quoted = sizeof(reply.rest);
	reply.header.nlmsg_type = NLMSG_ERROR;
	reply.header.nlmsg_flags = error ? 0 : NLM_F_CAPPED;
	reply.header.nlmsg_seq = request->nlmsg_seq;
	reply.header.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(reply.body)) + quoted);
	reply.body.error = error;
	reply.body.msg = *request;
	memcpy(reply.rest, request + 1, quoted);
	deliver(port, &reply.header);
}

/* A socket that was connected to the kernel takes messages from the kernel alone. Disconnected, it still sends there. */
static void open_to_helper(int fd)
{
	struct sockaddr none = {.sa_family = AF_UNSPEC};

	if (connect(fd, &none, sizeof(none)) != 0)
		die("disconnect the asking socket");
}

/* True if the library took the message: a DCB request for one of its interfaces, on a route socket. */
static bool take(int fd, const void *data, size_t size)
{
	const struct nlmsghdr *request = data;
	const struct dcbmsg *dcb;
	const struct nlattr *head, *name;
	struct message m = {.length = NLMSG_LENGTH(sizeof(*dcb))};
	struct nlmsghdr *reply = (void *)m.buffer;
	char ifname[IFNAMSIZ] = "";
	size_t length;
	struct nic *nic;
	uint32_t port;
	int option = 0, error, saved = errno;
	socklen_t option_size = sizeof(option);

	if (!nics || size < NLMSG_LENGTH(sizeof(*dcb)) || request->nlmsg_len < NLMSG_LENGTH(sizeof(*dcb)) || request->nlmsg_len > size)
		return false;
	if (request->nlmsg_type != RTM_GETDCB && request->nlmsg_type != RTM_SETDCB)
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &option, &option_size) != 0 || option != AF_NETLINK)
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &option, &option_size) != 0 || option != NETLINK_ROUTE)
		return false;
	dcb = NLMSG_DATA(request);
	head = (const void *)((const char *)dcb + NLMSG_ALIGN(sizeof(*dcb)));
	length = request->nlmsg_len - NLMSG_LENGTH(sizeof(*dcb));
	name = find_attr(head, length, DCB_ATTR_IFNAME);
	if (!name)
		return false;
	memcpy(ifname, data_of(name), size_of(name) < IFNAMSIZ ? size_of(name) : IFNAMSIZ - 1);
	nic = find_nic(ifname);
	if (!nic)
		return false;

	memset(reply, 0, m.length);
	reply->nlmsg_type = request->nlmsg_type;
	reply->nlmsg_seq = request->nlmsg_seq;
	((struct dcbmsg *)NLMSG_DATA(reply))->cmd = dcb->cmd;
	port = port_of(fd);
	open_to_helper(fd);
	lock();
	error = answer(nic, dcb->cmd, head, length, &m);
	unlock();
	if (!error) {
		reply->nlmsg_len = m.length;
		deliver(port, reply);
	}
	if (error || request->nlmsg_flags & NLM_F_ACK)
		acknowledge(port, request, error);
	errno = saved;
	return true;
}

/* ---- what is put before the C library -------------------------------------------------------------------------------- */

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t to_size)
{
	return take(fd, data, size) ? (ssize_t)size : real_sendto(fd, data, size, flags, to, to_size);
}

ssize_t send(int fd, const void *data, size_t size, int flags)
{
	return sendto(fd, data, size, flags, NULL, 0);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	char flat[8192];
	size_t size = 0;

	for (size_t i = 0; i < message->msg_iovlen; i++) {
		const struct iovec *part = &message->msg_iov[i];

		if (part->iov_len > sizeof(flat) - size)
			return real_sendmsg(fd, message, flags);
		memcpy(flat + size, part->iov_base, part->iov_len);
		size += part->iov_len;
	}
	return take(fd, flat, size) ? (ssize_t)size : real_sendmsg(fd, message, flags);
}

static void from_kernel(void *name, socklen_t size)
{
	struct sockaddr_nl *from = name;

	if (helper_pid && from && size >= sizeof(*from) && from->nl_family == AF_NETLINK && from->nl_pid == helper_pid)
		from->nl_pid = 0;
}

ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *from, socklen_t *from_size)
{
	ssize_t got = real_recvfrom(fd, data, size, flags, from, from_size);

	if (got >= 0 && from && from_size)
		from_kernel(from, *from_size);
	return got;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	ssize_t got = real_recvmsg(fd, message, flags);

	if (got >= 0)
		from_kernel(message->msg_name, message->msg_namelen);
	return got;
}
