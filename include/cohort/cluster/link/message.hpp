// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages between a manager and its workers, and the frames that carry them.
///
/// Pure: bytes in, messages out. A message travels as frames of at most `frame_limit` bytes, so
/// that a large one does not hold up a cancellation behind it. What messages say is here too.

#include <cohort/cluster/link/attachment.hpp>
#include <cohort/cluster/link/handshake.hpp>
#include <cohort/core/copy.hpp>
#include <cohort/core/crypto.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/wire.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// What a message is about. `id` of the message is the call's where there is one.
enum class message_kind : std::uint8_t {
  identity = 1,  ///< worker: which program it is, before MPI begins
  ask_table,     ///< manager: list your functions
  table,         ///< worker: the list
  welcome,       ///< manager: it is the same program, begin MPI
  started,       ///< worker: its rank, and the number of ranks
  refused,       ///< manager: why this worker is not taken
  ready,         ///< manager: all ranks are there
  call,          ///< either: a function's index, its arguments
  cancel,        ///< either: give that call up
  result,        ///< either: what it returned
  failure,       ///< either: what it threw
  finish,        ///< manager: no more calls come; how many messages there were
  finished,      ///< worker: all of them have been seen; how many it has sent
  lost,          ///< manager: a rank that is lost, and why
  ask_quiet,  ///< manager: tell your peer traffic when nothing runs; how many messages there were
  quiet,      ///< worker: peer_traffic
  hold,       ///< manager: that call of all has failed; begin none until `go_on`
  set_aside,  ///< manager: nobody waits for that call of all; begin none until `go_on`
  stands_aside,  ///< worker: has done so; standing_aside
  used,  ///< worker: what a call of all that ends has done on its communicator; communicator_use
  go_on  ///< manager: begin calls of all again; what they may use from now on, if that is new
};
inline constexpr auto last_message_kind = message_kind::go_on;

struct message : payload {
  message_kind kind{};
  std::uint64_t id = 0;
  bool oversize = false;  ///< was longer than allowed; what it says is dropped
};

inline constexpr std::size_t frame_limit = std::size_t{1} << 20U;  ///< bytes of a frame's body
inline constexpr std::size_t frame_head_size = 16;
/// Messages of several frames that may be under way at once in one direction.
inline constexpr std::size_t interleaved_limit = 16;

/// What stands before each frame's body.
struct frame_head {
  std::uint32_t size = 0;  ///< of the body, in bytes
  message_kind kind{};
  bool last = true;
  std::uint64_t id = 0;
  bool attached = false;  ///< with this frame the message's bytes end, and attachments follow
};

using frame_head_bytes = std::array<std::byte, frame_head_size>;

[[nodiscard]] inline frame_head_bytes encode_frame_head(const frame_head& head) noexcept {
  frame_head_bytes out{};
  detail::store(out.data(), head.size, 4);
  out[4] = static_cast<std::byte>(head.kind);
  out[5] = static_cast<std::byte>((head.last ? 1 : 0) + (head.attached ? 2 : 0));
  detail::store(out.data() + 8, head.id, 8);
  return out;
}

/// False if no such frame exists.
[[nodiscard]] inline bool decode_frame_head(const frame_head_bytes& in, frame_head& head) noexcept {
  const auto kind = std::to_integer<unsigned>(in[4]);
  const auto end = std::to_integer<unsigned>(in[5]);
  head.size = static_cast<std::uint32_t>(detail::load(in.data(), 4));
  head.kind = static_cast<message_kind>(kind);
  head.last = end == 1;
  head.attached = end == 2;
  head.id = detail::load(in.data() + 8, 8);
  return head.size <= frame_limit && kind >= 1 &&
         kind <= static_cast<unsigned>(last_message_kind) && end <= 2 &&
         detail::load(in.data() + 6, 2) == 0;
}

/// Makes messages of a stream of frames. Writes to no more memory than bytes have arrived, twice
/// that while it grows, and 256 KiB for an attachment; holds at most `interleaved_limit` unfinished
/// messages of `max_message` bytes each.
class frame_reader {
 public:
  explicit frame_reader(std::size_t max_message) noexcept : max_message_(max_message) {}

  /// Takes what has arrived and gives each finished message to `sink(message&&)`, which returns
  /// whether to go on. False: what has arrived is no stream of frames, or the sink has had enough.
  /// `in_room`: bytes that have come before the others, and lie in `room()`.
  template <class Sink>
  [[nodiscard]] bool feed(std::span<const std::byte> bytes, Sink&& sink, std::size_t in_room = 0) {
    if (in_room != 0) {
      current_->took(in_room);
      body_left_ -= in_room;
    }
    for (;;) {
      if (current_ == nullptr) {
        if (bytes.empty()) return true;
        const std::size_t part = std::min(frame_head_size - head_have_, bytes.size());
        std::memcpy(head_bytes_.data() + head_have_, bytes.data(), part);
        head_have_ += part;
        bytes = bytes.subspan(part);
        if (head_have_ < frame_head_size) return true;
        if (!decode_frame_head(head_bytes_, head_) || !begin_body()) return false;
      }
      const std::size_t part = std::min(body_left_, bytes.size());
      append(bytes.first(part));
      bytes = bytes.subspan(part);
      body_left_ -= part;
      if (body_left_ != 0) return true;
      head_have_ = 0;
      unfinished* const done = std::exchange(current_, nullptr);
      if (head_.attached && !begin_attachments(*done)) return false;
      if (!head_.last) continue;
      if (done->left != 0 && !done->oversize) return false;
      message whole = std::move(static_cast<message&>(*done));
      *done = std::move(unfinished_.back());
      unfinished_.pop_back();
      if (!sink(std::move(whole))) return false;
    }
  }

  /// Where the next bytes shall lie, if at least so many have a place of their own; until `feed`.
  [[nodiscard]] std::span<std::byte> room(std::size_t least = attachment_size / 4) {
    if (current_ == nullptr || current_->oversize || !current_->attached) return {};
    if (body_left_ < least) return {};
    const auto here = current_->room();
    return here.first(std::min(here.size(), body_left_));
  }

  /// Between two messages.
  [[nodiscard]] bool idle() const noexcept { return head_have_ == 0 && unfinished_.empty(); }

 private:
  struct unfinished : message {
    bool attached = false;  // all bytes are there, and attachments follow
    std::size_t at = 0;     // the one that comes,
    std::size_t have = 0;   // what of it has come,
    std::size_t left = 0;   // and bytes of all that have not

    [[nodiscard]] std::span<std::byte> room() {
      auto here = attachments[at]->room(have);
      if (!here.empty()) return here;
      have = 0;
      return attachments[++at]->room(0);
    }
    void took(std::size_t size) noexcept {
      have += size;
      left -= size;
    }
    void drop() {
      oversize = true;
      static_cast<payload&>(*this) = payload();
    }
  };

  template <class Any = void>
  bool begin_body() {
    body_left_ = head_.size;
    for (unfinished& each : unfinished_) {
      if (each.id == head_.id && each.kind == head_.kind) {
        if (body_left_ == 0 && !head_.last) return false;  // frames without end
        if (each.attached && !each.oversize && (head_.attached || body_left_ > each.left)) {
          return false;
        }
        current_ = &each;
        return true;
      }
    }
    // One of a single frame ends before another begins, so it always has room.
    if (!head_.last && (unfinished_.size() == interleaved_limit || body_left_ == 0)) return false;
    unfinished& made = unfinished_.emplace_back();
    made.kind = head_.kind;
    made.id = head_.id;
    current_ = &made;
    return true;
  }
  template <class Any = void>
  bool begin_attachments(unfinished& here) {
    here.attached = true;
    if (here.oversize) return true;
    const auto size = attachment_table::take_from(here, max_message_);
    if (!size) return false;
    here.left = *size;
    if (here.left > max_message_ - here.bytes.size()) here.drop();
    return true;
  }
  template <class Any = void>
  void append(std::span<const std::byte> bytes) {
    if (current_->oversize) return;
    if (current_->attached) {
      while (!bytes.empty()) {
        const auto to = current_->room();
        const std::size_t part = std::min(to.size(), bytes.size());
        copy_bytes(to.data(), bytes.data(), part);
        current_->took(part);
        bytes = bytes.subspan(part);
      }
      return;
    }
    if (bytes.size() > max_message_ - current_->bytes.size()) return current_->drop();
    std::vector<std::byte>& to = current_->bytes;
    if (bytes.size() > to.capacity() - to.size()) {
      // Memory that nothing is written to costs nothing; copies do, and new pages for them.
      const std::size_t expected = head_.last || head_.attached
                                       ? to.size() + body_left_
                                       : std::max(2 * frame_limit, 8 * to.size());
      to.reserve(std::min(max_message_, expected));
    }
    append_bytes(to, bytes);
  }

  std::size_t max_message_;
  frame_head_bytes head_bytes_{};
  std::size_t head_have_ = 0;
  frame_head head_;
  std::size_t body_left_ = 0;
  unfinished* current_ = nullptr;
  std::vector<unfinished> unfinished_;
};

/// Which program a worker is. Must be the manager's own.
struct identity {
  std::string program;                            ///< program_id() there
  std::array<std::byte, session_size> session{};  ///< of its connections
  sha256_digest table{};                          ///< digest of its function table
  std::string host;
  std::uint64_t machine = 0;  ///< process::host_id() there
  std::int64_t pid = 0;
  std::int32_t rank = -1;  ///< as the launcher's environment has it; -1: it does not say
};

/// The manager's answer to an identity that it likes.
struct welcome {
  std::int64_t heartbeat = 0;  ///< nanoseconds between signs of life; 0: none are wanted
  /// Nanoseconds after which a worker that cannot connect for them goes without; 0: it fails.
  std::int64_t heartbeat_patience = 0;
};

/// What a worker sends on the connection for heartbeats, a byte each. A manager that lets the
/// worker go sends `leaves` there too.
enum class life_sign : char { beat, leaves };

/// A worker whose MPI has begun.
struct started {
  std::int32_t rank = 0;
  std::int32_t size = 0;
  bool peers = false;  ///< it takes part in calls between workers
};

/// What a worker without work says when it is asked: how many messages it has exchanged with its
/// peers.
struct peer_traffic {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  friend bool operator==(const peer_traffic&, const peer_traffic&) = default;
};

/// What a call of all has done on its communicator by its end.
struct communicator_use {
  std::uint64_t operations = 0;  ///< that it has begun
  bool goes_on = false;          ///< one of them, or the creation of a communicator
};

/// What a worker says of a call of all that it has been asked to set aside.
struct standing_aside {
  bool runs = false;        ///< the call, or something that it has left over
  std::uint64_t begun = 0;  ///< the last call of all that has begun there
};

/// The processes that calls of all may use collectives with from now on, and with which
/// communicator. Without members all is as before.
struct new_members {
  std::int32_t round = 0;           ///< of such messages
  bool with_manager = false;        ///< that of calls which the manager runs as well
  std::vector<std::int32_t> ids{};  ///< in the order of ranks
};

/// The rank of the manager, for calls to it. In an adopted job, where it is rank 0, so is 0.
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

  [[nodiscard]] bool is(std::uint32_t flag) const noexcept { return (flags & flag) != 0; }

  void append_to(std::vector<std::byte>& arguments) const {
    arguments.resize(arguments.size() + size);
    std::byte* const at = arguments.data() + arguments.size() - size;
    detail::store(at, function, 4);
    detail::store(at + 4, flags, 4);
    detail::store(at + 8, remaining, 8);
    detail::store(at + 16, order, 8);
  }
  /// Nothing if the message is too short.
  [[nodiscard]] static std::optional<call_tail> take_from(std::vector<std::byte>& message) {
    if (message.size() < size) return std::nullopt;
    const std::byte* const at = message.data() + message.size() - size;
    call_tail tail;
    tail.function = static_cast<std::uint32_t>(detail::load(at, 4));
    tail.flags = static_cast<std::uint32_t>(detail::load(at + 4, 4));
    tail.remaining = detail::load(at + 8, 8);
    tail.order = detail::load(at + 16, 8);
    message.resize(message.size() - size);
    return tail;
  }
};

/// Calls whose id has this bit set have nobody who waits for them.
inline constexpr std::uint64_t one_way_bit = std::uint64_t{1} << 63U;

/// Where a worker finds its manager, and how it proves that it belongs to the launch.
inline constexpr const char* token_variable = "COHORT_CLUSTER_TOKEN";
/// Addresses "host:port", separated by commas, in the order in which they are tried.
inline constexpr const char* manager_variable = "COHORT_CLUSTER_MANAGER";

}  // namespace cohort::cluster
