// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages between a manager and its workers, and the frames that carry them.
///
/// Pure: bytes in, messages out. A message travels as frames of at most `frame_limit` bytes, so
/// that a large one does not hold up a cancellation behind it.

#include <cohort/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
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

struct message {
  message_kind kind{};
  std::uint64_t id = 0;
  std::vector<std::byte> bytes;
  bool oversize = false;  ///< was longer than allowed; the bytes are dropped
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
};

using frame_head_bytes = std::array<std::byte, frame_head_size>;

[[nodiscard]] inline frame_head_bytes encode_frame_head(const frame_head& head) noexcept {
  frame_head_bytes out{};
  for (std::size_t i = 0; i < 4; ++i) out[i] = static_cast<std::byte>(head.size >> (8 * i));
  out[4] = static_cast<std::byte>(head.kind);
  out[5] = static_cast<std::byte>(head.last ? 1 : 0);
  for (std::size_t i = 0; i < 8; ++i) out[8 + i] = static_cast<std::byte>(head.id >> (8 * i));
  return out;
}

/// False if no such frame exists.
[[nodiscard]] inline bool decode_frame_head(const frame_head_bytes& in, frame_head& head) noexcept {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint64_t>(in[i]); };
  head.size = 0;
  head.id = 0;
  for (std::size_t i = 0; i < 4; ++i) head.size |= static_cast<std::uint32_t>(at(i) << (8 * i));
  for (std::size_t i = 0; i < 8; ++i) head.id |= at(8 + i) << (8 * i);
  head.kind = static_cast<message_kind>(at(4));
  head.last = at(5) == 1;
  return head.size <= frame_limit && at(4) >= 1 &&
         at(4) <= static_cast<std::uint64_t>(last_message_kind) && at(5) <= 1 && at(6) == 0 &&
         at(7) == 0;
}

/// Makes messages of a stream of frames. Writes to no more memory than bytes have arrived, twice
/// that while it grows, and holds at most `interleaved_limit` unfinished messages of `max_message`
/// bytes each.
class frame_reader {
 public:
  explicit frame_reader(std::size_t max_message) noexcept : max_message_(max_message) {}

  /// Takes what has arrived and gives each finished message to `sink(message&&)`, which returns
  /// whether to go on. False: what has arrived is no stream of frames, or the sink has had enough.
  template <class Sink>
  [[nodiscard]] bool feed(std::span<const std::byte> bytes, Sink&& sink);

  /// Between two messages.
  [[nodiscard]] bool idle() const noexcept { return head_have_ == 0 && unfinished_.empty(); }

 private:
  template <class Any = void>
  bool begin_body();
  template <class Any = void>
  void append(std::span<const std::byte> bytes);

  std::size_t max_message_;
  frame_head_bytes head_bytes_{};
  std::size_t head_have_ = 0;
  frame_head head_;
  std::size_t body_left_ = 0;
  message* current_ = nullptr;
  std::vector<message> unfinished_;
};

template <class Sink>
bool frame_reader::feed(std::span<const std::byte> bytes, Sink&& sink) {
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
    message* const done = std::exchange(current_, nullptr);
    if (!head_.last) continue;
    message whole = std::move(*done);
    *done = std::move(unfinished_.back());
    unfinished_.pop_back();
    if (!sink(std::move(whole))) return false;
  }
}

template <class Any>
bool frame_reader::begin_body() {
  body_left_ = head_.size;
  for (message& each : unfinished_) {
    if (each.id == head_.id && each.kind == head_.kind) {
      if (body_left_ == 0 && !head_.last) return false;  // frames without end
      current_ = &each;
      return true;
    }
  }
  // One of a single frame ends before another begins, so it always has room.
  if (!head_.last && (unfinished_.size() == interleaved_limit || body_left_ == 0)) return false;
  message& made = unfinished_.emplace_back();
  made.kind = head_.kind;
  made.id = head_.id;
  current_ = &made;
  return true;
}

template <class Any>
void frame_reader::append(std::span<const std::byte> bytes) {
  if (current_->oversize) return;
  if (bytes.size() > max_message_ - current_->bytes.size()) {
    current_->oversize = true;
    std::vector<std::byte>().swap(current_->bytes);
    return;
  }
  std::vector<std::byte>& to = current_->bytes;
  if (bytes.size() > to.capacity() - to.size()) {
    // Memory that nothing is written to costs nothing; copies do, and new pages for them.
    const std::size_t expected =
        head_.last ? to.size() + body_left_ : std::max(2 * frame_limit, 8 * to.size());
    to.reserve(std::min(max_message_, expected));
  }
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace cohort::cluster
