// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/p2p/batch.hpp>
#include <cohort/p2p/probe.hpp>
#include <cohort/p2p/recv.hpp>
#include <cohort/p2p/send.hpp>
#include <cohort/p2p/send_recv.hpp>

#include <utility>
#include <vector>

// expect: after the communicator come a source
asio::awaitable<void> probe_with_buffer(cohort::communicator world) {
  std::vector<double> data(2);
  co_await cohort::probe(world, data, 1, 7);
}

// expect: a receive needs a buffer that can be written
asio::awaitable<void> recv_into_const(cohort::communicator world) {
  const std::vector<double> data(2);
  co_await cohort::recv(world, data, 1, 7);
}

// expect: the first argument is no buffer: pass a contiguous range or scalar lvalue
asio::awaitable<void> send_of_temporary(cohort::communicator world) {
  co_await cohort::send(world, 1.0, 1, 7);
}

// expect: this call does not fit
asio::awaitable<void> send_recv_without_tag(cohort::communicator world) {
  std::vector<double> out(2), in(2);
  co_await cohort::send_recv(world, out, 1, in, 1);
}

// expect: after the buffer come a rank and a tag
asio::awaitable<void> send_without_tag(cohort::communicator world) {
  std::vector<double> data(2);
  co_await cohort::send(world, data, 1);
}

// expect: a batch borrows its buffers and can run again
void batch_of_an_owned_container(cohort::batch& messages) {
  std::vector<float> data(2);
  messages.send(std::move(data), 1, 7);
}

// expect: a receive needs a buffer that can be written
void batch_into_const(cohort::batch& messages) {
  const std::vector<float> data(2);
  messages.recv(data, 1, 7);
}
