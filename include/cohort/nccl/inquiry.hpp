// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// A question of one rank to the others of its communicator, where they stand, and what the answers
/// say about who holds an operation up.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/fault_message.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace cohort::nccl {

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
  /// It is about something that is not in the queue of a device: who hears what was found out.
  std::function<void(const std::string&)> tell{};

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
  if (at.stands == standing::ended) return text + "has ended";
  if (at.stands == standing::queued) text += "queued";
  if (at.stands == standing::launching) text += "being launched";
  if (at.stands == standing::on_device) text += "on the device";
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
