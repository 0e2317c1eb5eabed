// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/collectives/all_gather.hpp>
#include <cohort/collectives/all_reduce.hpp>
#include <cohort/collectives/all_to_all.hpp>
#include <cohort/collectives/barrier.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/collectives/gather.hpp>
#include <cohort/collectives/neighbor.hpp>
#include <cohort/collectives/reduce.hpp>
#include <cohort/collectives/reduce_scatter.hpp>
#include <cohort/collectives/scan.hpp>
#include <cohort/collectives/scatter.hpp>
#include <cohort/comm/operation.hpp>

#include <array>
#include <complex>
#include <map>
#include <vector>

// expect: both buffers need one element type
asio::awaitable<void> all_gather_of_two_types(cohort::communicator world) {
  std::vector<double> in(2);
  std::vector<float> out(8);
  co_await cohort::all_gather(world, in, out);
}

// expect: after the buffers come counts for the _v forms
asio::awaitable<void> all_gather_v_without_counts(cohort::communicator world) {
  std::vector<double> in(2);
  std::array<double, 8> out{};
  co_await cohort::all_gather_v(world, in, out);
}

// expect: after the buffers come counts for the _v forms, or cohort::exchanged_counts
asio::awaitable<void> exchanged_gather_v_into_const(cohort::communicator world) {
  std::vector<double> in(2);
  const std::vector<double> out(8);
  co_await cohort::gather_v(world, in, out, cohort::exchanged_counts, 0);
}

// expect: both buffers need one element type
asio::awaitable<void> all_to_all_v_of_two_types(cohort::communicator world) {
  std::vector<double> in(2);
  std::vector<float> out(8);
  std::vector<int> counts(2);
  co_await cohort::all_to_all_v(world, in, counts, out, cohort::exchanged_counts);
}

// expect: the result needs a writable buffer
asio::awaitable<void> all_reduce_into_const(cohort::communicator world) {
  const std::vector<double> data(3);
  co_await cohort::all_reduce(world, data, cohort::op::sum);
}

// expect: the first argument is no buffer: pass a contiguous range or scalar lvalue
asio::awaitable<void> all_reduce_of_temporary(cohort::communicator world) {
  co_await cohort::all_reduce(world, 1.0, cohort::op::sum);
}

// expect: the reduction must be defined for it (no sum of bool
asio::awaitable<void> all_reduce_sum_of_bool(cohort::communicator world) {
  bool flag = true;
  co_await cohort::all_reduce(world, flag, cohort::op::sum);
}

// expect: adasum in all_reduce of float, double, f16 and bf16 only
asio::awaitable<void> all_reduce_adasum_of_int(cohort::communicator world) {
  std::vector<int> data(3);
  co_await cohort::all_reduce(world, data, cohort::op::adasum);
}

// expect: adasum in all_reduce of float, double, f16 and bf16 only
asio::awaitable<void> reduce_scatter_adasum(cohort::communicator world) {
  std::vector<float> data(3);
  co_await cohort::reduce_scatter(world, data, cohort::op::adasum);
}

// expect: adasum in all_reduce of float, double, f16 and bf16 only
asio::awaitable<void> reduce_adasum(cohort::communicator world) {
  std::vector<float> data(3);
  co_await cohort::reduce(world, data, cohort::op::adasum, 0);
}

// expect: stateless
asio::awaitable<void> all_reduce_with_capture(cohort::communicator world, double weight) {
  std::vector<double> data(3);
  const auto blend = [weight](double a, double b) { return a + weight * b; };
  co_await cohort::all_reduce(world, data, cohort::user_op{blend, cohort::commutative});
}

// expect: no reduction given
asio::awaitable<void> all_reduce_without_reduction(cohort::communicator world) {
  std::vector<double> data(3);
  co_await cohort::all_reduce(world, data);
}

// expect: a buffer that receives must be writable
asio::awaitable<void> all_to_all_into_const(cohort::communicator world) {
  std::vector<double> in(2);
  const std::vector<double> out(2);
  co_await cohort::all_to_all(world, in, out);
}

// expect: after the buffers come counts for the _v forms
asio::awaitable<void> all_to_all_v_without_counts(cohort::communicator world) {
  std::vector<double> in(2), out(2);
  co_await cohort::all_to_all_v(world, in, out);
}

// expect: a barrier takes a communicator and a completion token
asio::awaitable<void> barrier_with_root(cohort::communicator world) {
  co_await cohort::barrier(world, 0);
}

// expect: a buffer that receives must be writable
asio::awaitable<void> broadcast_of_const(cohort::communicator world) {
  const std::vector<double> data(3);
  co_await cohort::broadcast(world, data, 0);
}

// expect: the first argument is no buffer: pass a contiguous range or scalar lvalue
asio::awaitable<void> broadcast_of_temporary(cohort::communicator world) {
  co_await cohort::broadcast(world, 4, 0);
}

// expect: the root is missing: an integer after the buffers
asio::awaitable<void> broadcast_without_root(cohort::communicator world) {
  std::vector<double> data(3);
  co_await cohort::broadcast(world, data);
}

// expect: no min of complex
asio::awaitable<void> exclusive_scan_min_of_complex(cohort::communicator world) {
  std::complex<double> z;
  co_await cohort::exclusive_scan(world, z, cohort::op::min);
}

// expect: a buffer that receives must be writable
asio::awaitable<void> gather_v_into_const(cohort::communicator world) {
  std::vector<double> in(2);
  const std::vector<double> out(8);
  std::vector<int> counts(4);
  co_await cohort::gather_v(world, in, out, counts, 0);
}

// expect: the root is missing
asio::awaitable<void> gather_without_root(cohort::communicator world) {
  std::vector<double> in(2), out(8);
  co_await cohort::gather(world, in, out);
}

// expect: both buffers need one element type
asio::awaitable<void> neighbor_all_gather_of_two_types(cohort::communicator world) {
  std::vector<float> in(2);
  std::vector<double> out(8);
  co_await cohort::neighbor_all_gather(world, in, out);
}

// expect: after the buffers come counts for the _v forms
asio::awaitable<void> neighbor_all_gather_v_without_counts(cohort::communicator world) {
  std::vector<float> in(2), out(2);
  co_await cohort::neighbor_all_gather_v(world, in, out);
}

// expect: this call does not fit
asio::awaitable<void> neighbor_all_to_all_of_one_buffer(cohort::communicator world) {
  std::vector<float> data(2);
  co_await cohort::neighbor_all_to_all(world, data);
}

// expect: the first argument is no buffer: pass a contiguous range or scalar lvalue
asio::awaitable<void> neighbor_all_to_all_v_of_temporary(cohort::communicator world) {
  std::vector<int> out(2), counts(2);
  co_await cohort::neighbor_all_to_all_v(world, 5, counts, out, counts);
}

// expect: both buffers need one element type
asio::awaitable<void> reduce_scatter_of_two_types(cohort::communicator world) {
  std::vector<double> in(4);
  std::vector<float> out(2);
  co_await cohort::reduce_scatter(world, in, out, cohort::op::sum);
}

// expect: average of floating point only
asio::awaitable<void> reduce_scatter_v_average_of_int(cohort::communicator world) {
  std::vector<int> in(4), out(2), counts(2);
  co_await cohort::reduce_scatter_v(world, in, out, counts, cohort::op::average);
}

// expect: the root is missing: an integer after the reduction
asio::awaitable<void> reduce_without_root(cohort::communicator world) {
  std::vector<double> data(3);
  co_await cohort::reduce(world, data, cohort::op::sum);
}

// expect: no bitwise operation on floating point
asio::awaitable<void> scan_bits_of_double(cohort::communicator world) {
  std::vector<double> data(3);
  co_await cohort::scan(world, data, cohort::op::bit_or);
}

// expect: the first argument is no buffer: pass a contiguous range or scalar lvalue
asio::awaitable<void> scatter_of_no_buffer(cohort::communicator world) {
  std::map<int, double> in;
  std::vector<double> out(8);
  co_await cohort::scatter(world, in, out, 0);
}

// expect: the root is missing
asio::awaitable<void> scatter_v_without_root(cohort::communicator world) {
  std::vector<double> in(2), out(8);
  std::vector<int> counts(4);
  co_await cohort::scatter_v(world, in, out, counts);
}
