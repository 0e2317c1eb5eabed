// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What ranks of an NCCL communicator tell each other over MPI when something goes wrong: that it
/// has failed, and where each of them stands; and, when it has ended, that no more will come.
///
/// All messages have one size, so that one posted receive takes any of them. They are read with the
/// library's serializer, bounded and checked: what is no message is dropped, whoever has sent it.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/wire.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace cohort::nccl {

/// The communicator has failed where this comes from.
struct fault_notice {
  static constexpr std::size_t longest_text = 230;
  std::uint64_t token = 0;  ///< of the communicator that it is about
  bool only_this = false;   ///< the sender has aborted this communicator alone
  std::string text;         ///< why
  friend bool operator==(const fault_notice&, const fault_notice&) = default;
};

/// Where do you stand?
struct position_question {
  std::uint64_t token = 0;
  std::uint64_t number = 0;  ///< of the question, for the answer
  friend bool operator==(const position_question&, const position_question&) = default;
};

/// Where the operation of a position is.
enum class standing : std::uint8_t { none, ended, queued, launching, on_device };
[[nodiscard]] inline const char* in_words(standing where) noexcept {
  constexpr std::array<const char*, 5> words = {"none", "has ended", "queued", "being launched",
                                                "on the device"};
  return words[static_cast<std::size_t>(where)];
}

/// The operation that a rank is at: the oldest that has not ended, or else the last.
struct rank_position {
  static constexpr std::size_t longest_verb = 32;
  std::uint64_t collectives = 0;  ///< that the rank has started, of those that all ranks start
  standing stands = standing::none;
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  std::uint64_t milliseconds = 0;  ///< since it was started, unless it has ended
  std::string verb;
  friend bool operator==(const rank_position&, const rank_position&) = default;
};

/// The answer to that.
struct position_answer {
  std::uint64_t token = 0;
  std::uint64_t number = 0;
  std::uint32_t rank = 0;  ///< in the communicator
  rank_position position;
  friend bool operator==(const position_answer&, const position_answer&) = default;
};

/// No more messages come from this rank; so many have been sent to you.
struct fault_goodbye {
  std::uint64_t token = 0;
  std::uint32_t messages = 0;
  friend bool operator==(const fault_goodbye&, const fault_goodbye&) = default;
};

using fault_message = std::variant<fault_notice, position_question, position_answer, fault_goodbye>;

/// What MPI takes over at once. A longer message may leave only with the help of its receiver,
/// which may sleep: in shared memory Open MPI 4.1 keeps one of 512 bytes back.
inline constexpr std::size_t fault_message_size = 255;  // and a byte of the channel
using fault_bytes = std::array<std::byte, fault_message_size>;

/// Texts that are too long are cut; control characters in them become blanks.
[[nodiscard]] fault_bytes encode(const fault_message& message);
/// Nothing if these bytes are no message of this version.
[[nodiscard]] std::optional<fault_message> decode(std::span<const std::byte> bytes);

// ---- implementation --------------------------------------------------------------------------

namespace detail {

inline constexpr std::uint8_t fault_version = 1;

[[nodiscard]] inline bool is_control(char c) noexcept {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// One function for both directions.
template <class Archive>
void plain(Archive& archive, std::string& text, std::size_t longest) {
  if constexpr (Archive::reads) {
    const std::string_view found = archive.text();
    if (found.size() > longest) archive.fail(wire_errc::too_long);
    if (std::any_of(found.begin(), found.end(), is_control)) archive.fail(wire_errc::bad_value);
    if (archive.ok()) text = found;
  } else {
    std::string kept = text.substr(0, longest);
    std::replace_if(kept.begin(), kept.end(), is_control, ' ');
    archive.text(kept);
  }
}
template <class Archive>
void fields(Archive& archive, fault_notice& one) {
  archive(one.token, one.only_this);
  plain(archive, one.text, fault_notice::longest_text);
}
template <class Archive>
void fields(Archive& archive, position_question& one) {
  archive(one.token, one.number);
}
template <class Archive>
void fields(Archive& archive, fault_goodbye& one) {
  archive(one.token, one.messages);
}
template <class Archive>
void fields(Archive& archive, position_answer& one) {
  rank_position& at = one.position;
  auto stands = static_cast<std::uint8_t>(at.stands);
  archive(one.token, one.number, one.rank, at.collectives, stands, at.sequence, at.bytes,
          at.milliseconds);
  plain(archive, at.verb, rank_position::longest_verb);
  if constexpr (Archive::reads) {
    if (stands > static_cast<std::uint8_t>(standing::on_device)) {
      archive.fail(wire_errc::bad_value);
    } else {
      at.stands = static_cast<standing>(stands);
    }
  }
}

template <class Message>
std::optional<fault_message> read_as(wire::reader& in) {
  Message made;
  fields(in, made);
  const auto rest = in.raw(in.left());  // what a message leaves of its bytes is zero
  if (!in.ok()) return std::nullopt;
  if (std::any_of(rest.begin(), rest.end(), [](std::byte one) { return one != std::byte{}; })) {
    return std::nullopt;
  }
  return made;
}

}  // namespace detail

inline fault_bytes encode(const fault_message& message) {
  std::vector<std::byte> bytes;
  bytes.reserve(fault_message_size);
  wire::writer out(bytes);
  out.byte(detail::fault_version);
  out.byte(static_cast<std::uint8_t>(message.index()));
  std::visit(
      [&](auto one) {  // a copy: the function that reads takes what it can write to
        detail::fields(out, one);
      },
      message);
  static_assert(fault_notice::longest_text + 24 < fault_message_size);
  fault_bytes made{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), made.size()), made.begin());
  return made;
}

inline std::optional<fault_message> decode(std::span<const std::byte> bytes) {
  if (bytes.size() != fault_message_size) return std::nullopt;
  wire::reader in(bytes);
  if (in.byte() != detail::fault_version) return std::nullopt;
  switch (in.byte()) {
    case 0:
      return detail::read_as<fault_notice>(in);
    case 1:
      return detail::read_as<position_question>(in);
    case 2:
      return detail::read_as<position_answer>(in);
    case 3:
      return detail::read_as<fault_goodbye>(in);
    default:
      return std::nullopt;
  }
}

/// Asked when a deadline passes over an operation, or it takes longer than COHORT_STALL_WARNING.
struct inquiry {
  std::uint64_t number = 0;      ///< of the question
  std::uint64_t sequence = 0;    ///< of the operation
  std::uint64_t collective = 0;  ///< its number among those that all ranks start; 0: it is not one
  std::string about;             ///< the operation, in words
  std::error_code why;           ///< the deadline, or none
  bool aborts = false;           ///< the communicators are to end when the answers are there
  std::chrono::steady_clock::time_point until{};
  std::vector<std::optional<rank_position>> answers;  ///< of each rank
  /// It is about something that is not in the queue of a device: who gets what was found out.
  std::function<void(const std::string&)> report{};

  [[nodiscard]] bool is_answered() const noexcept {
    for (const auto& one : answers) {
      if (!one) return false;
    }
    return true;
  }
};

/// "silent for 1000 ms: rank 2; has not started it: rank 1 (barrier #3 of 4 bytes, has ended);
/// others: rank 3 (...)". Names eight ranks of each kind at most.
[[nodiscard]] std::string findings(const inquiry& asked, int own_rank,
                                   std::chrono::milliseconds waited);

// ---- implementation --------------------------------------------------------------------------

namespace detail {

inline std::string in_words(const rank_position& at) {
  if (at.stands == standing::none) return "has started nothing";
  std::string text =
      at.verb + " #" + std::to_string(at.sequence) + " of " + std::to_string(at.bytes) + " bytes, ";
  text += nccl::in_words(at.stands);
  if (at.stands == standing::ended) return text;
  return text + " for " + std::to_string(at.milliseconds) + " ms";
}

/// Ranks after a heading, but not too many.
class rank_list {
 public:
  explicit rank_list(std::string heading) : text_(std::move(heading)) {}
  void add(std::size_t rank, const std::string& remark = {}) {
    if (++count_ > most) return;
    text_ += (count_ == 1 ? ": rank " : ", rank ") + std::to_string(rank);
    if (!remark.empty()) text_ += " (" + remark + ")";
  }
  void append_to(std::string& all) const {
    if (count_ == 0) return;
    if (!all.empty()) all += "; ";
    all += text_;
    if (count_ > most) all += " and " + std::to_string(count_ - most) + " more";
  }

 private:
  static constexpr std::size_t most = 8;
  std::string text_;
  std::size_t count_ = 0;
};

}  // namespace detail

inline std::string findings(const inquiry& asked, int own_rank, std::chrono::milliseconds waited) {
  detail::rank_list silent("silent for " + std::to_string(waited.count()) + " ms");
  detail::rank_list behind("has not started it");
  detail::rank_list others("others");
  for (std::size_t rank = 0; rank < asked.answers.size(); ++rank) {
    const auto& at = asked.answers[rank];
    if (rank == static_cast<std::size_t>(own_rank)) continue;
    if (!at) {
      silent.add(rank);
    } else if (at->collectives < asked.collective) {
      behind.add(rank, detail::in_words(*at));
    } else {
      others.add(rank, detail::in_words(*at));
    }
  }
  std::string text;
  silent.append_to(text);
  behind.append_to(text);
  others.append_to(text);
  return text;
}

}  // namespace cohort::nccl

#endif
