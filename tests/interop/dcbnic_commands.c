/* The NIC of dcbnic.c: pre-standard CEE, the small commands, and which function answers which request. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dcbnic.h"

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
int answer(struct nic *nic, int command, const struct nlattr *head, size_t length, struct message *m)
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
