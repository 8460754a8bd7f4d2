/* Control side of the run time: exported to Python through ctypes (switch/native_pipeline.py). Codes are PL_* of pl_rt.h. */
#ifndef DCB_PL_TABLES_H
#define DCB_PL_TABLES_H

#include "pl_rt.h"

int pl_table_init(pl_table_t *t, const pl_table_desc_t *desc);
void pl_table_free(pl_table_t *t);

/* Keys are packed words. `mask`: ternary words (bits of range fields are 0). `high`: upper ends of range fields.
 * Returns the handle or a negative code. */
int64_t pl_table_insert(pl_t *pl, uint32_t table, const uint64_t *key, const uint64_t *mask, const uint64_t *high,
                        uint32_t prefix_len, int64_t rank, uint32_t kind, uint32_t action, const uint64_t *data,
                        uint32_t n_data);
int pl_table_modify(pl_t *pl, uint32_t table, uint64_t handle, uint32_t kind, uint32_t action, const uint64_t *data,
                    uint32_t n_data);
int pl_table_delete(pl_t *pl, uint32_t table, uint64_t handle);
int pl_table_set_default(pl_t *pl, uint32_t table, uint32_t kind, uint32_t action, const uint64_t *data, uint32_t n_data);
int pl_table_reset_default(pl_t *pl, uint32_t table);
int64_t pl_table_hit_age_us(pl_t *pl, uint32_t table, uint64_t handle);
int pl_direct_counter(pl_t *pl, uint32_t table, uint64_t handle, pl_count_t *value, int write);
int pl_direct_meter(pl_t *pl, uint32_t table, uint64_t handle, const uint64_t *rates);

int pl_member_set(pl_t *pl, uint32_t profile, uint32_t id, uint32_t action, const uint64_t *data, uint32_t n_data);
int pl_member_delete(pl_t *pl, uint32_t profile, uint32_t id);
int pl_group_set(pl_t *pl, uint32_t profile, uint32_t id, const uint32_t *ids, const uint32_t *weights, uint32_t n);
int pl_group_delete(pl_t *pl, uint32_t profile, uint32_t id);
int32_t pl_find_member(const pl_profile_t *profile, uint32_t id);
int32_t pl_find_group(const pl_profile_t *profile, uint32_t id);

int pl_counter(pl_t *pl, uint32_t counter, uint32_t index, pl_count_t *value, int write);
int pl_counter_all(const pl_t *pl, uint32_t counter, pl_count_t *values, uint32_t n);
int pl_register(pl_t *pl, uint32_t reg, uint32_t index, uint64_t *cells, int write);
int pl_meter_set(pl_t *pl, uint32_t meter, uint32_t index, const uint64_t *rates); /* cir, cburst, pir, pburst; or NULL */
int pl_vset_write(pl_t *pl, uint32_t vset, const uint64_t *members, uint32_t n);
uint64_t pl_failed_asserts(const pl_t *pl);

#endif
