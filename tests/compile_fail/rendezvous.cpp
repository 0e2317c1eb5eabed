// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include <cohort/rendezvous.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

// expect: name the type that is received
asio::awaitable<void> next_without_type(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  co_await step.next(key);
}

// expect: a receive into memory needs a std::span
asio::awaitable<void> recv_into_const(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  co_await step.recv_into(key, std::span<const int>(data));
}

// expect: a receive into memory needs a std::span
asio::awaitable<void> recv_into_vector(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  co_await step.recv_into(key, data);
}

// expect: this type cannot be received
asio::awaitable<void> recv_of_span(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  co_await step.recv<std::span<int>>(key);
}

// expect: after the key comes only a completion token
asio::awaitable<void> recv_with_buffer(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  co_await step.recv<int>(key, data);
}

// expect: name the type that is received
asio::awaitable<void> recv_without_type(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  co_await step.recv(std::as_const(key));
}

// expect: this type cannot be sent
asio::awaitable<void> send_of_pointer(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  step.send(key, &data);
  co_return;
}

// expect: this type cannot be sent
asio::awaitable<void> send_of_shared_strings(cohort::rendezvous_step step,
                                             cohort::rendezvous_key key) {
  step.send(key, std::make_shared<const std::vector<std::string>>(2));
  co_return;
}

// expect: it is send(key, value[, dead])
asio::awaitable<void> send_with_token(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  step.send(key, data, asio::use_awaitable);
  co_return;
}

// expect: the first argument is no key
asio::awaitable<void> send_without_key(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  step.send("activations", data);
  co_return;
}

// expect: the value is missing
asio::awaitable<void> send_without_value(cohort::rendezvous_step step, cohort::rendezvous_key key) {
  std::vector<int> data(2);
  step.send(key);
  co_return;
}
