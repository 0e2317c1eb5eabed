// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The messages in a packet, for tests that look at them on their way.

#include <cohort/core/wire.hpp>
#include <cohort/graph/machine/message.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace graph_test {

struct message_view {
  cohort::graph::machine::scope_id id;
  cohort::graph::machine::message_kind kind{};
  std::uint64_t epoch = 0;
  std::span<const std::byte> body;
};

/// Throws std::system_error where the bytes are no packet.
template <class Visit>
void read_packet(std::span<const std::byte> bytes, Visit visit) {
  const auto check = [](cohort::wire::reader& from) {
    if (!from.ok()) throw std::system_error(from.error(), "no packet");
  };
  cohort::wire::reader in(bytes);
  while (in.left() != 0) {
    message_view one;
    one.id = in.get<cohort::graph::machine::scope_id>();
    cohort::wire::reader messages(in.raw(in.count()));
    check(in);
    while (messages.left() != 0) {
      const std::uint8_t kind = messages.byte();
      if (kind >= cohort::graph::machine::message_kinds) {
        messages.fail(cohort::wire_errc::bad_value);
      }
      one.kind = static_cast<cohort::graph::machine::message_kind>(kind);
      one.epoch = messages.varint();
      one.body = messages.raw(messages.count());
      check(messages);
      visit(one);
    }
  }
}

}  // namespace graph_test
