// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/coordinator/coordinator.hpp>

#include <string>
#include <vector>

namespace op = cohort::op;

struct arguments {
  cohort::coordinator coord;
  cohort::process_set evens;
  cohort::persistent_group group;
  std::vector<float> data = std::vector<float>(4);
  const std::vector<float> fixed = std::vector<float>(4);
  std::vector<int> numbers = std::vector<int>(4);
  std::vector<std::string> words = std::vector<std::string>(4);
};

asio::awaitable<void> wrong(arguments& a) {
  // expect: no reduction given
  co_await a.coord.all_reduce("w", a.data);
  // expect: a temporary would dangle
  co_await a.evens.all_reduce("w", 1.0F, op::sum);
  // expect: a buffer that receives must be writable
  co_await a.coord.all_reduce("w", a.fixed, op::sum);
  // expect: no bitwise operation on floating point
  co_await a.coord.all_reduce("w", a.data, op::bit_and);
  // expect: adasum in all_reduce of float, double, f16 and bf16 only
  co_await a.coord.all_reduce("w", a.numbers, op::adasum);
  // expect: adasum in all_reduce of float, double, f16 and bf16 only
  co_await a.coord.reduce_scatter("w", a.data, op::adasum);
  // expect: adasum in all_reduce of float, double, f16 and bf16 only
  co_await a.coord.reduce("w", a.data, op::adasum, 0);
  // expect: two buffers need one element type
  co_await a.coord.all_reduce("w", a.data, a.numbers, op::sum);
  // expect: the rank is missing
  co_await a.coord.reduce("w", a.data, op::sum);
  // expect: the rank is missing
  co_await a.coord.broadcast("w", a.data);
  // expect: the name of the operation comes first
  co_await a.coord.broadcast(a.data, 0);
  // expect: the name of the operation comes first
  co_await a.coord.all_gather(a.data);
  // expect: after the name comes a buffer
  co_await a.coord.all_gather("rows", a.words);
  // expect: this call does not fit
  co_await a.coord.all_to_all("tokens", a.data);
  // expect: no reduction given
  co_await a.evens.reduce_scatter("shard", a.data);
  // expect: the rank is missing
  co_await a.coord.gather("rows", a.data);
  // expect: two buffers need one element type
  co_await a.coord.scatter("rows", a.data, a.numbers, 0);
  // expect: two buffers need one element type
  co_await a.coord.all_gather("rows", a.data, a.numbers);
  // expect: a buffer that receives must be writable
  co_await a.evens.all_gather("rows", a.data, a.fixed);
  // expect: the rank is missing
  co_await a.coord.send("boundary", a.data);
  // expect: a buffer that receives must be writable
  co_await a.coord.recv("boundary", a.fixed, 0);
  // expect: a name or nothing
  co_await a.coord.barrier("name", asio::use_awaitable, 0, 0);
  // expect: the first argument is a bundle
  co_await a.coord.grouped_all_reduce(a.data, op::sum);
  // expect: no reduction given
  co_await a.coord.grouped_all_reduce(cohort::bundle("b"));
  // expect: one of your own and adasum in all_reduce only
  co_await a.coord.grouped_reduce_scatter(cohort::bundle("b"), op::adasum);
  // expect: one of your own and adasum in all_reduce only
  co_await a.coord.grouped_reduce(cohort::bundle("b"), op::adasum, 0);
  // expect: the root is missing
  co_await a.coord.grouped_broadcast(cohort::bundle("b"));
  // expect: no reduction given
  co_await a.coord.make_persistent(cohort::bundle("b"), 3);
  // expect: the name of the operation comes first
  co_await a.coord.broadcast_object(a.numbers, 0);
}

void wrong_members(arguments& a) {
  // expect: add takes the member's name and a buffer
  cohort::bundle("b").add("a", std::vector<float>(3));
  // expect: add takes the member's name and a buffer
  cohort::bundle("b").add(a.data);
  // expect: add takes the member's name and a buffer
  cohort::bundle("b").add("a", a.fixed);
}

asio::awaitable<void> wrong_group(arguments& a) {
  // expect: start takes a completion token only
  co_await a.group.start(a.data);
  // expect: capture takes a completion token only
  co_await a.group.capture(a.data);
  // expect: replay takes what capture() gave
  co_await a.group.replay(a.data);
  // expect: remove takes a completion token only
  co_await a.group.remove(3);
}
