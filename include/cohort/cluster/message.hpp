// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the messages between manager and workers say.

#include <cohort/cluster/frame.hpp>
#include <cohort/cluster/handshake.hpp>
#include <cohort/core/hmac.hpp>
#include <cohort/core/wire.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cohort::cluster {

/// Which program a worker is. Must be the manager's own.
struct identity {
  std::string program;                            ///< program_id() there
  std::array<std::byte, session_size> session{};  ///< of its connections
  sha256_digest table{};                          ///< digest of its function table
  std::string host;
  std::uint64_t machine = 0;  ///< process::host_id() there
  std::int64_t pid = 0;
  std::int32_t rank = -1;  ///< as the launcher's environment has it; -1: it does not say

  template <class Archive>
  friend void wire_fields(Archive& archive, identity& all) {
    archive(all.program, all.session, all.table, all.host, all.machine, all.pid, all.rank);
  }
};

/// The manager's answer to an identity that it likes.
struct welcome {
  std::int64_t heartbeat = 0;  ///< nanoseconds between signs of life; 0: none are wanted
  /// Nanoseconds after which a worker that cannot connect for them goes without; 0: it fails.
  std::int64_t heartbeat_patience = 0;

  template <class Archive>
  friend void wire_fields(Archive& archive, welcome& all) {
    archive(all.heartbeat, all.heartbeat_patience);
  }
};

/// What a worker sends on the connection for heartbeats, a byte each. `leaves` is also what a
/// manager says there that lets it go.
enum class life_sign : char { beat, leaves };

/// A worker whose MPI has begun.
struct started {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  bool peers = false;  ///< it takes part in calls between workers

  template <class Archive>
  friend void wire_fields(Archive& archive, started& all) {
    archive(all.rank, all.size, all.peers);
  }
};

/// What a worker without work says when it is asked: how many messages it has exchanged with its
/// peers.
struct peer_traffic {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;

  template <class Archive>
  friend void wire_fields(Archive& archive, peer_traffic& all) {
    archive(all.sent, all.received);
  }
  friend bool operator==(const peer_traffic&, const peer_traffic&) = default;
};

/// What a call of all has done on its communicator by its end.
struct communicator_use {
  std::uint64_t operations = 0;  ///< that it has begun
  bool goes_on = false;          ///< one of them, or the creation of a communicator

  template <class Archive>
  friend void wire_fields(Archive& archive, communicator_use& all) {
    archive(all.operations, all.goes_on);
  }
};

/// What a worker says of a call of all that it has been asked to set aside.
struct standing_aside {
  bool runs = false;        ///< the call, or something that it has left over
  std::uint64_t begun = 0;  ///< the last call of all that has begun there

  template <class Archive>
  friend void wire_fields(Archive& archive, standing_aside& all) {
    archive(all.runs, all.begun);
  }
};

/// The processes that calls of all may use collectives with from now on, and with which
/// communicator. Without members all is as before.
struct new_members {
  std::int32_t round = 0;           ///< of such messages
  bool with_manager = false;        ///< that of calls which the manager runs as well
  std::vector<std::int32_t> ids{};  ///< in the order of ranks

  template <class Archive>
  friend void wire_fields(Archive& archive, new_members& all) {
    archive(all.round, all.with_manager, all.ids);
  }
};

/// Of the manager, for calls to it. Where it is a rank of an adopted job, that is 0 as well.
inline constexpr int manager_id = -1;

/// What stands behind the arguments of a call. Of a fixed size, so that the arguments are a prefix
/// of the message.
struct call_tail {
  static constexpr std::size_t size = 24;
  static constexpr std::uint32_t one_way = 1;        ///< no answer, unless it fails
  static constexpr std::uint32_t ordered = 2;        ///< one of call_all: after the one before
  static constexpr std::uint32_t on_thread = 4;      ///< not on the loop
  static constexpr std::uint32_t limited = 8;        ///< it has a deadline
  static constexpr std::uint32_t with_manager = 16;  ///< of call_all: the manager runs it as well

  std::uint32_t function = 0;  ///< index in the table
  std::uint32_t flags = 0;
  std::uint64_t remaining = 0;  ///< nanoseconds until the deadline
  std::uint64_t order = 0;      ///< of ordered calls: 0, 1, …

  void append_to(std::vector<std::byte>& arguments) const {
    number(arguments, function, 4);
    number(arguments, flags, 4);
    number(arguments, remaining, 8);
    number(arguments, order, 8);
  }
  /// Nothing if the message is too short.
  [[nodiscard]] static std::optional<call_tail> take_from(std::vector<std::byte>& message) {
    if (message.size() < size) return std::nullopt;
    const std::byte* at = message.data() + message.size() - size;
    call_tail tail;
    tail.function = static_cast<std::uint32_t>(number(at, 4));
    tail.flags = static_cast<std::uint32_t>(number(at + 4, 4));
    tail.remaining = number(at + 8, 8);
    tail.order = number(at + 16, 8);
    message.resize(message.size() - size);
    return tail;
  }

 private:
  static void number(std::vector<std::byte>& out, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  static std::uint64_t number(const std::byte* in, int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value |= std::to_integer<std::uint64_t>(in[i]) << (8 * i);
    return value;
  }
};

/// Calls whose id has this bit set have nobody who waits for them.
inline constexpr std::uint64_t one_way_bit = std::uint64_t{1} << 63U;

/// Where a worker finds its manager, and how it proves that it belongs to the launch.
inline constexpr const char* token_variable = "COHORT_CLUSTER_TOKEN";
/// Addresses "host:port", separated by commas, in the order in which they are tried.
inline constexpr const char* manager_variable = "COHORT_CLUSTER_MANAGER";

}  // namespace cohort::cluster
