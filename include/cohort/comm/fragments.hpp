// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Messages of any length as fragments of bounded length, and back. It knows nothing of what
/// carries the fragments: `channel` gives them to MPI, tests to `testing::network`.
///
/// ```
/// put(out.begin(), what);                    // appends the bytes of a message
/// out.finish(kind);
/// while (!out.all_taken()) carry(out.next(longest_fragment));
///
/// const auto come = in.take(fragment);       // on the other side
/// if (come.refused != nullptr) lose(come.refused);
/// if (come.whole) use(come.kind, come.bytes);
/// ```
///
/// A fragment is one byte, and bytes of the message. The byte is the message's kind times four,
/// with 1 added if it goes on in the next fragment, 2 if it is a message of its own in between.
/// [protocol T1]
///
/// Fragments have no numbers. What carries them delivers all of one sender, once and in order, as
/// MPI does. Where it does not, parts of several messages may come out as one. Those in between
/// stay whole, and what is kept stays below its bound.

#include <cohort/core/copy.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace cohort::comm {

/// The sender's side: the message to one receiver, and how much of it has been taken.
class outgoing_message {
 public:
  /// The next message, for its bytes to be appended.
  [[nodiscard]] std::vector<std::byte>& begin() {
    bytes_.assign(1, std::byte{0});
    taken_ = bytes_.size();  // there is nothing to take yet
    return bytes_;
  }
  /// It has all its bytes. Kinds are below 64.
  void finish(unsigned kind) noexcept {
    bytes_[0] = static_cast<std::byte>(kind << 2U);
    taken_ = 0;
  }
  /// The next fragment, of at most `longest` bytes, which is 2 or more. It must have been sent when
  /// this is called again. *Requires* `finish` before, and `!all_taken()`.
  [[nodiscard]] std::span<const std::byte> next(std::size_t longest) noexcept {
    const auto left = std::span(bytes_).subspan(taken_);
    const std::size_t size = std::min(left.size(), longest);
    const bool more = size < left.size();
    const std::byte kind = bytes_[0] & ~goes_on;
    left[0] = more ? kind | goes_on : kind;  // but for the first, it was in the fragment before
    taken_ += more ? size - 1 : size;
    return left.first(size);
  }
  [[nodiscard]] bool all_taken() const noexcept { return taken_ == bytes_.size(); }
  /// What has been taken does not arrive.
  void lose() noexcept { taken_ = 0; }
  /// With the first byte.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

  /// Writes the fragment of a message that may be sent between those of another.
  static void in_between(std::vector<std::byte>& fragment, unsigned kind,
                         std::span<const std::byte> message) {
    fragment.resize(message.size() + 1);
    fragment[0] = static_cast<std::byte>(kind << 2U) | alone;
    copy_bytes(fragment.data() + 1, message.data(), message.size());
  }

 private:
  friend class message_assembly;
  static constexpr std::byte goes_on{1};
  static constexpr std::byte alone{2};

  std::vector<std::byte> bytes_;  // after the first byte of a fragment
  std::size_t taken_ = 0;
};

/// The receiver's side: what has come of the message from one sender.
class message_assembly {
 public:
  /// No message of more bytes is taken.
  explicit message_assembly(std::size_t longest) noexcept : longest_(longest) {}

  struct outcome {
    const char* refused = nullptr;  ///< why; nothing is taken any more
    bool whole = false;             ///< it is the last fragment of this message
    unsigned kind = 0;
    std::span<const std::byte> bytes{};  ///< as far as it has come; until the next fragment
  };
  /// Takes any bytes. A message of one fragment is not copied: it is valid as long as `fragment`.
  /// If this throws `std::bad_alloc`, a part of the message is missing, and `refuse` has to follow.
  [[nodiscard]] outcome take(std::span<const std::byte> fragment) {
    if (refused_) return refusal("a message after one that is none");
    if (fragment.empty()) return refusal("a message without a byte");
    const auto has = [&](std::byte flag) { return (fragment[0] & flag) != std::byte{0}; };
    const bool alone = has(outgoing_message::alone);
    const bool more = !alone && has(outgoing_message::goes_on);
    const bool first = alone || !goes_on_;
    const std::size_t before = first ? 0 : bytes_.size();
    outcome come{nullptr, !more, std::to_integer<unsigned>(fragment[0] >> 2), fragment.subspan(1)};
    if (come.bytes.size() > longest_ - before) return refusal("a message that is too long");
    if (!alone) goes_on_ = more;
    if (first && !more) return come;
    if (first) bytes_.clear();
    append_bytes(bytes_, come.bytes);
    come.bytes = bytes_;
    return come;
  }
  void refuse() noexcept {
    refused_ = true;
    bytes_ = std::vector<std::byte>();
  }
  /// Bytes of memory that it has, at most twice the longest message; none once it has refused.
  [[nodiscard]] std::size_t kept() const noexcept { return bytes_.capacity(); }

 private:
  [[nodiscard]] outcome refusal(const char* why) noexcept {
    refuse();
    return {why};
  }

  std::size_t longest_;
  std::vector<std::byte> bytes_;  // of fragments that came
  bool goes_on_ = false;          // another fragment is to come
  bool refused_ = false;
};

}  // namespace cohort::comm
