/* The NIC of dcbnic.c: 802.1Qaz, that is ETS, PFC and applications. */
#include <errno.h>
#include <string.h>

#include "dcbnic.h"

/* ---- IEEE ------------------------------------------------------------------------------------------------------------ */

void say_app(const struct dcb_app *app, bool first)
{
	say("%s{\"selector\": %u, \"protocol\": %u, \"priority\": %u}", first ? "" : ", ", app->selector, app->protocol, app->priority);
}

int add_app(struct nic *nic, const struct dcb_app *app, bool replace)
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

void ieee_change(struct nic *nic, const struct nlattr *nest, struct message *m, bool delete)
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

void ieee_get(const struct nic *nic, struct message *m)
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
