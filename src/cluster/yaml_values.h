/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ADP_CLUSTER_YAML_VALUES_H
#define ADP_CLUSTER_YAML_VALUES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "adp/arena.h"
#include "adp/cluster.h"

/*
 * Values of a cluster file. All: a missing or null key leaves *out alone; errors name path.key.
 * *found may be NULL.
 */
int adp_yaml_bandwidth(double *out, bool *found, const json_t *object, const char *key,
                       const char *path, struct adp_error *err); /* above 0 */
int adp_yaml_duration(double *out, const json_t *object, const char *key, const char *path,
                      struct adp_error *err);
int adp_yaml_load(double *out, const json_t *object, const char *key, const char *path,
                  struct adp_error *err); /* 0 <= x < 1; 0.2 or 20% */
int adp_yaml_watts(double *out, bool *found, const json_t *object, const char *key,
                   const char *path,
                   struct adp_error *err); /* above 0; 400kW, 700W or a number of watts */
int adp_yaml_bytes(uint64_t *out, bool *found, const json_t *object, const char *key,
                   const char *path, struct adp_error *err); /* 80GiB; a unit is needed */
int adp_yaml_name(const char **out, const json_t *object, const char *key, const char *path,
                  struct adp_error *err); /* printable; borrowed from object */
int adp_yaml_u32(uint32_t *out, bool *found, const json_t *object, const char *key, uint32_t min,
                 uint32_t max, const char *path, struct adp_error *err);

/* A relative speed, ADP_LEAST_SPEED .. 1, as a number or "80%". what names the place. */
int adp_yaml_speed(double *out, const json_t *value, const char *what, struct adp_error *err);

/* "rack-{}" or "gpu{03}": at most one place for a number, with a width. */
bool adp_yaml_is_pattern(const char *text);
/* Puts index into the pattern; text without a place is copied. ADP_EINVAL when malformed or too
 * long. */
int adp_yaml_expand(char out[254], const char *pattern, uint64_t index, const char *what,
                    struct adp_error *err);

#endif
