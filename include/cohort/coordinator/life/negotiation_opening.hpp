// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How a negotiation is opened, and its options compared.

#include <cohort/comm/backend_opening.hpp>
#include <cohort/comm/joint.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/coordinator/sets/set_view.hpp>
#include <cohort/core/failure.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/option_errors.hpp>
#include <cohort/progress/look_task.hpp>
#include <cohort/protocol/node.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// Bytes of a text that tells why a rank refuses its options.
inline constexpr std::size_t longest_refusal = 256;

/// Makes the communicators and compares the options of all ranks; what leaves is a negotiation that
/// is open, or one that has broken down on every rank.
template <class Any>
class negotiation_opening {
 public:
  explicit negotiation_opening(negotiation<Any>& log) noexcept : log_(log) {}

  std::string refused;  ///< why this rank refuses its options: then it is opened only to say so

  void begin() {
    if (!log_.options.timeline.empty()) {
      if (const std::error_code bad = log_.recording.start(log_.options.timeline)) {
        log::write(log::level::warning, "timeline " + log_.options.timeline + ": " + bad.message());
      }
    }
    const comm::request_source::guard hold(log_.source);
    const errc bad = log_.source.usable();
    if (bad != errc{})
      return log_.faults.break_down(std::make_exception_ptr(error(bad, "coordinator")));
    auto opening = open_with_others();
    ++log_.life.openings;
    progress::begin_look_task(std::move(opening), {.verb = "coordinator"},
                              [this](const std::exception_ptr& why) {
                                const comm::request_source::guard held(log_.source);
                                if (why) log_.faults.break_down(why);
                                --log_.life.openings;
                                log_.life.check_released();
                              });
    log_.engine.started();
  }
  [[nodiscard]] static protocol::tree make_tree(const communicator& parent,
                                                const coordinator_options& options) {
    const int radix = static_cast<int>(options.radix);
    if (!parent.state()->bells)
      return protocol::tree::balanced(parent.rank(), parent.size(), radix);
    std::vector<int> node_of;
    for (int rank = 0; rank < parent.size(); ++rank) {
      node_of.push_back(parent.state()->node_of(rank));
    }
    return protocol::tree::node_aware(parent.rank(), node_of, radix);
  }
  [[nodiscard]] static protocol::node_options node_options_of(const coordinator_options& options) {
    protocol::node_options result;
    result.cache_capacity = static_cast<std::size_t>(options.cache_capacity);
    result.cache_keep = static_cast<std::size_t>(options.cache_keep);
    result.name_capacity = static_cast<std::size_t>(options.name_capacity);
    result.firsts = static_cast<std::size_t>(options.firsts);
    result.poison_capacity = static_cast<std::size_t>(options.poison_capacity);
    result.in_flight = static_cast<std::size_t>(options.in_flight);
    result.fusion.fuse_below = options.fusion_threshold;
    result.fusion.pack_limit = options.fusion_buffer;
    result.fusion.alignment = 8;
    result.fusion.pack_most =
        static_cast<std::size_t>(std::max<std::uint64_t>(options.fusion_buffer / 64, 1));
    result.fusion.patience = static_cast<std::size_t>(options.patience);
    result.query_timeout = static_cast<std::uint64_t>(options.query_timeout.count());
    result.decides_when_asked = true;
    if (!options.frozen_plan.empty()) {
      auto plan = std::make_shared<std::vector<protocol::frozen_pack>>();
      for (const auto& names : options.frozen_plan) plan->push_back({0, names});
      result.plan = std::move(plan);
    }
    return result;
  }
  /// The communicators of a process set are there: chooses a backend, if there is to be one, and
  /// opens.
  void set_made(communicator made) {
    if (!comm::chooses_backend_over_nodes(*log_.control.state())) {
      return slots_made(std::move(made));
    }
    auto choosing = choose_backend("process set");
    ++log_.life.openings;
    progress::begin_look_task(std::move(choosing), {.verb = "add_process_set"},
                              [this, made = std::move(made)](const std::exception_ptr& why,
                                                             comm::opened_backend by) mutable {
                                const comm::request_source::guard held(log_.source);
                                use(std::move(by));
                                if (why) {
                                  log_.faults.break_down(why);
                                } else if (!log_.faults.broken) {
                                  slots_made(std::move(made));
                                }
                                --log_.life.openings;
                                log_.life.check_released();
                              });
  }
  /// The communicators are there: opens.
  void slots_made(communicator made) {
    log_.slots = std::move(made);
    const comm::request_source::guard hold(log_.source);
    set_place& place = log_.sets.whole().place;
    place.shared = log_.control.state()->exchange.native();
    place.slots = {log_.slots.state()->data.native(), log_.slots.state()->exchange.native()};
    place.slots.resize(log_.options.slots);
    log_.plane.open(*log_.control.state(), log_.backend.get(), log_.device.get());
    log_.neighbours.find();
    log_.life.opened();
    try {
      log_.neighbours.open();
    } catch (const std::system_error& problem) {
      return log_.faults.break_down(std::make_exception_ptr(problem));
    }
    if (log_.rank == 0) {
      log::write(log::level::debug, "coordinator: " + describe(log_.options));
      log_.tuned.open();
    }
    log_.touch();
  }

 private:
  /// What ranks compare: values and their names.
  struct compared_values {
    std::vector<std::uint64_t> values;
    std::vector<std::string> fields;
    std::vector<std::pair<std::string, std::uint64_t>> facts;  // of the backend for devices
  };
  [[nodiscard]] auto choose_backend(const char* what_for) {
    const comm::backend_wish wish{
        .orders = 1 + log_.options.slots,
        .bytes_beside = comm::message_rings::bytes(static_cast<std::size_t>(log_.size))};
    return comm::open_backend_together(log_.control, log_.control.state()->exchange.native(), wish,
                                       what_for);
  }
  void use(comm::opened_backend chosen) {
    if (!chosen.backend) return;
    log_.backend = chosen.backend;
    if (chosen.beside.empty()) return;  // over several nodes
    log_.neighbours.use(comm::rings_in(std::move(chosen), log_.rank, log_.size));
  }
  /// Makes the communicators of a negotiation and compares the options of its ranks. [protocol D3]
  [[nodiscard]] progress::look_task<> open_with_others() {
    compared_values compared = values_to_compare();
    communicator slots;
    auto making = comm::joint::create(log_.parent, [&](mpi::comm made) {
      mpi::comm exchange = made.dup();
      mpi::comm slot = made.dup();
      mpi::comm other_slot = made.dup();
      log_.control = communicator::adopt(log_.parent, std::move(made), std::move(exchange));
      slots = communicator::adopt(log_.control, std::move(slot), std::move(other_slot));
    });
    co_await making;
    auto comparing = compare_options(compared);
    if (!co_await comparing) co_return;
    if (!log_.backend && !log_.device && comm::chooses_backend_over_nodes(*log_.control.state())) {
      auto choosing = choose_backend("coordinator");
      comm::opened_backend chosen = co_await choosing;
      use(std::move(chosen));
    }
    communicator for_device;
    if (log_.device) {
      auto duplicating = comm::joint::duplicate(log_.control);
      for_device = co_await duplicating;
    }
    slots_made(std::move(slots));
    if (!for_device || log_.faults.broken) co_return;
    log_.sets.whole().take(std::move(for_device));
    log_.device.open(log_.sets.whole());
  }
  /// Breaks down and returns false if a rank refuses its options, or if they differ.
  [[nodiscard]] progress::look_task<bool> compare_options(compared_values& own) {
    // The largest of each value and of its complement tell of the same value where all agree.
    std::vector<std::int64_t> compared;
    for (const std::uint64_t value : own.values) {
      const auto number = static_cast<std::int64_t>(value >> 1U ^ value << 63U);
      compared.push_back(number);
      compared.push_back(~number);
    }
    auto reducing = comm::joint::request(log_.control, [&](MPI_Request* posted) {
      return mpi::post::iallreduce(MPI_IN_PLACE, compared.data(),
                                   static_cast<MPI_Count>(compared.size()), MPI_INT64_T, MPI_MAX,
                                   log_.control.native(), posted);
    });
    co_await reducing;
    const auto same = [&](std::size_t value) {
      return compared[2 * value] == ~compared[2 * value + 1];
    };
    const bool refusals = !refused.empty() || !same(0);
    bool all_same = !refusals;
    for (std::size_t i = 0; i < own.values.size(); ++i) all_same = all_same && same(i);
    if (all_same) co_return true;
    // The digest of the facts says no more; their values do, where all ranks have the same facts.
    const bool same_facts = same(own.values.size() - 2);
    own.values.pop_back();
    for (const auto& [name, value] : own.facts) {
      if (!same_facts) break;
      own.fields.push_back(name);
      own.values.push_back(value);
    }
    if (refusals) {  // only these are told of, for what else such a rank has are defaults
      own.values.assign(longest_refusal / sizeof(std::uint64_t), 0);
      std::memcpy(own.values.data(), refused.data(), std::min(refused.size(), longest_refusal));
    }
    std::vector<std::uint64_t> gathered(own.values.size() * static_cast<std::size_t>(log_.size));
    auto gathering = comm::joint::request(log_.control, [&](MPI_Request* posted) {
      const auto count = static_cast<MPI_Count>(own.values.size());
      return mpi::post::iallgather(own.values.data(), count, MPI_UINT64_T, gathered.data(), count,
                                   MPI_UINT64_T, log_.control.native(), posted);
    });
    co_await gathering;
    const mismatch_error found =
        refusals ? name_refusing(gathered) : name_differing(gathered, own.fields);
    log_.faults.break_down(std::make_exception_ptr(found), !refused.empty());
    co_return false;
  }
  /// As many numbers on every rank:
  /// - a digest of why this rank refuses its options,
  /// - the rows of the table of options,
  /// - a digest of the frozen plan,
  /// - the first letters of the name of the backend for the host,
  /// - those of the backend for devices, the names of its facts, and their values.
  [[nodiscard]] compared_values values_to_compare() const {
    compared_values own;
    constexpr std::uint64_t nothing = 14695981039346656037U;
    const auto mix = [](std::uint64_t& digest, std::uint64_t value) {
      digest = (digest ^ value) * 1099511628211U;
    };
    const auto mix_text = [&mix](std::uint64_t& digest, std::string_view text) {
      for (const char c : text) mix(digest, static_cast<unsigned char>(c));
      mix(digest, 256U);
    };
    std::uint64_t refusal = nothing;
    mix_text(refusal, refused);
    own.fields.emplace_back("options");
    own.values.push_back(refusal);
    for (const option_row& row : option_table()) {
      own.fields.emplace_back(row.name);
      own.values.push_back(row.get(log_.options));
    }
    std::uint64_t plan = nothing;
    for (const auto& pack : log_.options.frozen_plan) {
      for (const std::string& name : pack) mix_text(plan, name);
      mix(plan, 257U);
    }
    own.fields.emplace_back("frozen_plan");
    own.values.push_back(plan);
    const auto letters = [](std::string_view name) {
      std::uint64_t first = 0;
      std::memcpy(&first, name.data(), std::min(name.size(), sizeof(first)));
      return first;
    };
    own.fields.emplace_back("backend for the host");
    own.values.push_back(log_.backend ? letters(log_.backend->name()) : 0);
    std::uint64_t backend = 0;
    std::uint64_t names = nothing;
    std::uint64_t facts = nothing;
    if (log_.device) {
      const std::string_view name = log_.device->name();
      backend = letters(name);
      mix_text(names, name);
      log_.device->facts(own.facts);
      for (const auto& [fact, value] : own.facts) {
        mix_text(names, fact);
        mix(facts, value);
      }
    }
    own.fields.emplace_back("backend");
    own.fields.emplace_back("facts of the backend");
    own.values.insert(own.values.end(), {backend, names, facts});
    return own;
  }
  /// The texts of the ranks, one after the other.
  [[nodiscard]] mismatch_error name_refusing(const std::vector<std::uint64_t>& gathered) const {
    std::map<std::string, rank_set> causes;
    const char* at = reinterpret_cast<const char*>(gathered.data());
    for (int from = 0; from < log_.size; ++from, at += longest_refusal) {
      const char* const end = std::find(at, at + longest_refusal, '\0');
      if (at != end) causes[std::string(at, end)].insert(from);
    }
    return refused_options(log_.rank, "coordinator", causes);
  }
  [[nodiscard]] mismatch_error name_differing(const std::vector<std::uint64_t>& gathered,
                                              const std::vector<std::string>& fields) const {
    return differing_options(
        log_.rank, "coordinator", fields, gathered, [](const auto& field, auto value) {
          const bool is_name = field == "backend" || field == "backend for the host";
          if (!is_name) return std::to_string(value);  // of names, letters
          std::array<char, sizeof(value) + 1> letters{};
          std::memcpy(letters.data(), &value, sizeof(value));
          return value == 0 ? std::string("none") : std::string(letters.data());
        });
  }

  negotiation<Any>& log_;
};

}  // namespace cohort::coordination
