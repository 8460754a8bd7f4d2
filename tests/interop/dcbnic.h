/* What the files of the preload library dcbnic.so share. All of it is hidden: a preloaded library must not stand in for
 * functions of the program that happen to have these names. */
#ifndef DCBNIC_H
#define DCBNIC_H

#include <linux/dcbnl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

struct message {
	uint32_t length;
	char buffer[8192];
};

/* One attribute after the other; the inner loop may be left with break. */
#define FOR_ATTRS(a, head, head_len) \
	for (int left_ = (int)(head_len), once_ = 1; once_; once_ = 0) \
		for (const struct nlattr *a = (head); attr_ok(a, left_); left_ -= (int)NLA_ALIGN(a->nla_len), a = next_attr(a))

#pragma GCC visibility push(hidden)

extern int record_fd; /* DCBNIC_RECORD, or -1 */

bool attr_ok(const struct nlattr *a, int left);
const struct nlattr *next_attr(const struct nlattr *a);
int type_of(const struct nlattr *a);
const void *data_of(const struct nlattr *a);
size_t size_of(const struct nlattr *a);
uint8_t u8_of(const struct nlattr *a);
uint32_t u32_of(const struct nlattr *a);
const struct nlattr *find_attr(const struct nlattr *head, size_t length, int type);
bool copy_struct(const struct nlattr *a, void *to, size_t size);
struct nlattr *put(struct message *m, int type, const void *data, size_t size);
void put_u8(struct message *m, int type, int value);
struct nlattr *open_nest(struct message *m, int type);
void close_nest(struct message *m, struct nlattr *nest);
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
void say_octets(const char *name, const uint8_t *values, int count);
void begin_record(const struct nic *nic, const char *command);
void end_record(int result);
void say_app(const struct dcb_app *app, bool first);
int add_app(struct nic *nic, const struct dcb_app *app, bool replace);
void ieee_change(struct nic *nic, const struct nlattr *nest, struct message *m, bool delete);
void ieee_get(const struct nic *nic, struct message *m);
int answer(struct nic *nic, int command, const struct nlattr *head, size_t length, struct message *m);
void die(const char *what);

#pragma GCC visibility pop

#endif
