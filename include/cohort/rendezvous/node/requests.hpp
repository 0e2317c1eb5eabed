// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The requests of a rank that have no answer yet, and the tags of those that were granted.

#include <cohort/rendezvous/node/node_state.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace cohort::meeting {

/// A request for one number of a key.
struct asked {
  int peer;
  step_state* step;
  step_state::incoming* channel;  // null: nobody needs the answer
  std::uint64_t number;
  step_ptr keep = nullptr;  // of the step, once it has no channel
  receiver* granted = nullptr;
  int tag = 0;
  bool dead = false;

  void forget_channel() {
    channel = nullptr;
    keep = step->shared_from_this();
  }
};

template <class Any>
class basic_requests {
 public:
  explicit basic_requests(node_state<Any>& all) : here_(all) {}

  [[nodiscard]] bool empty() const noexcept { return asked_.empty(); }
  /// Null if it has been answered.
  [[nodiscard]] asked* find(std::uint64_t id) {
    const auto found = asked_.find(id);
    return found == asked_.end() ? nullptr : &found->second;
  }
  /// It is answered.
  asked take(std::uint64_t id) {
    const auto found = asked_.find(id);
    asked one = std::move(found->second);
    asked_.erase(found);
    return one;
  }
  void erase(std::uint64_t id) { asked_.erase(id); }

  void make(step_state::incoming& channel, std::uint64_t number) {
    const rendezvous_key key = channel.key->view().key;
    record one = record_of(record_kind::request, channel.step->id, key, number);
    one.incarnation = here_.incarnation_of(key.source);
    one.id = next_id_++;
    channel.slots[number].id = one.id;
    asked_[one.id] = asked{key.source, channel.step, &channel, number};
    here_.out.say(key.source, one);
  }
  void withdraw(std::uint64_t id) {
    here_.out.say(asked_.at(id).peer, {.kind = record_kind::withdraw, .id = id});
  }

  // Offers that are granted: the bytes travel under a tag that nothing else uses.
  [[nodiscard]] bool has_tag() const noexcept {
    return !free_tags_.empty() || next_tag_ <= here_.options.tags;
  }
  /// *Requires* a tag.
  void grant(const step_state::slot& offer, receiver& to, std::byte* into) {
    asked& one = asked_.at(offer.id);
    one.granted = &to;
    one.forget_channel();
    one.dead = offer.dead;
    if (free_tags_.empty()) {
      one.tag = next_tag_++;
    } else {
      one.tag = free_tags_.back();
      free_tags_.pop_back();
    }
    here_.transfers.push_back({one.peer, one.tag, true, into, nullptr, offer.size, offer.id});
    here_.out.say(
        one.peer,
        {.kind = record_kind::grant, .id = offer.id, .size = static_cast<std::uint64_t>(one.tag)});
  }
  /// The bytes have come, or never will. Nothing if they were not granted.
  std::optional<asked> take_granted(std::uint64_t id) {
    if (find(id) == nullptr) return std::nullopt;
    asked one = take(id);
    free_tags_.push_back(one.tag);
    return one;
  }

  /// Those to this rank, or all, end here, but for transfers that were granted: these end by what
  /// drives them.
  void forget(int to) {
    std::erase_if(asked_, [to](const auto& each) {
      return (to < 0 || each.second.peer == to) && each.second.granted == nullptr;
    });
  }
  /// Nobody will send the values that that rank was granted, but those of `coming`.
  void give_up_all_but(int lost, const std::vector<std::uint64_t>& coming) {
    for (const auto& [id, one] : asked_) {
      if (one.peer != lost || one.granted == nullptr) continue;
      if (std::find(coming.begin(), coming.end(), id) == coming.end()) {
        given_up_.emplace_back(lost, id);
      }
    }
  }
  [[nodiscard]] std::vector<std::pair<int, std::uint64_t>> take_given_up() {
    return std::exchange(given_up_, {});
  }

 private:
  node_state<Any>& here_;
  pooled_map<std::uint64_t, asked> asked_;
  std::vector<std::pair<int, std::uint64_t>> given_up_;
  std::vector<int> free_tags_;
  int next_tag_ = 1;
  std::uint64_t next_id_ = 1;
};

/// The error of a receive whose request the rank has refused; `text` is of the receive.
template <class Any = void>
[[nodiscard]] std::exception_ptr refusal_error(int from, const std::string& text,
                                               const record& refusal) {
  switch (refusal.why) {
    case reason::aborted: {
      std::error_code cause;
      for (const std::error_category* each :
           {&cohort_category(), &std::generic_category(), &std::system_category()}) {
        if (refusal.cause.category != each->name()) continue;
        cause = std::error_code(static_cast<int>(refusal.cause.code), *each);
      }
      return std::make_exception_ptr(step_aborted_error(
          from, cause,
          text + "rank " + std::to_string(from) + ": " + std::string(refusal.cause.text)));
    }
    case reason::cleaned:
      return std::make_exception_ptr(error(errc::step_cleaned, text + "on the sending rank"));
    case reason::stale:
      return std::make_exception_ptr(error(errc::stale_incarnation, text + "recv"));
    case reason::closed:
    case reason::withdrawn:
      break;
  }
  return std::make_exception_ptr(error(errc::closed, text + "the sending rank has closed"));
}

}  // namespace cohort::meeting
