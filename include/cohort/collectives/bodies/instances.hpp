// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the library has of collectives that block: `all_reduce` and `reduce` with sum, max
/// and min, and `broadcast`, of float, double, int and long in borrowed memory, whatever the
/// container.

#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/collectives/reduce.hpp>

#define COHORT_INSTANCE(HOW, ...) \
  HOW void run_blocking<void, __VA_ARGS__>(const communicator&, __VA_ARGS__&);
#define COHORT_INSTANCES_OF_REDUCTION(HOW, VERB, T, OP)                   \
  COHORT_INSTANCE(HOW, in_place_reduction_body<VERB, buffer_view<T>, OP>) \
  COHORT_INSTANCE(HOW, reduction_body<VERB, buffer_view<const T>, buffer_view<T>, OP>)
#define COHORT_INSTANCES_OF_TYPE(HOW, T)                            \
  COHORT_INSTANCES_OF_REDUCTION(HOW, all_reduce_verb, T, op::sum_t) \
  COHORT_INSTANCES_OF_REDUCTION(HOW, all_reduce_verb, T, op::max_t) \
  COHORT_INSTANCES_OF_REDUCTION(HOW, all_reduce_verb, T, op::min_t) \
  COHORT_INSTANCES_OF_REDUCTION(HOW, reduce_verb, T, op::sum_t)     \
  COHORT_INSTANCES_OF_REDUCTION(HOW, reduce_verb, T, op::max_t)     \
  COHORT_INSTANCES_OF_REDUCTION(HOW, reduce_verb, T, op::min_t)     \
  COHORT_INSTANCE(HOW, broadcast_body<buffer_view<T>>)
#define COHORT_INSTANCES(HOW)           \
  COHORT_INSTANCES_OF_TYPE(HOW, float)  \
  COHORT_INSTANCES_OF_TYPE(HOW, double) \
  COHORT_INSTANCES_OF_TYPE(HOW, int)    \
  COHORT_INSTANCES_OF_TYPE(HOW, long)   \
  COHORT_INSTANCE(HOW, barrier_body)

#ifdef COHORT_SEPARATE_COMPILATION
namespace cohort::comm::detail {
using namespace cohort::collectives;
using namespace cohort::collectives::detail;
COHORT_INSTANCES(extern template)
}  // namespace cohort::comm::detail
#endif
