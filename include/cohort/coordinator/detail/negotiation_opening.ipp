// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file How an instance is opened, and its options compared.

#include <cohort/coordinator/negotiation.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/option_mismatch.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace cohort::coordination {

/// Bytes of a text that tells why a rank refuses its options.
inline constexpr std::size_t longest_refusal = 256;

/// Makes the communicators of an instance and compares the options of its ranks. [protocol D3] It
/// owns what MPI writes to, and frees itself when the engine delivers it.
template <class Any>
class negotiation<Any>::opening final : public comm::request_operation {
 public:
  explicit opening(negotiation& owner) : request_operation(&run), owner_(&owner) {
    advance_ = &advanced;
    advances_failed_ = true;
    verb = "coordinator";
    rank = owner.rank_;
    collect_values();
  }
  void begin(const communicator& over);

 private:
  static bool advanced(request_operation* base);
  static void run(operation* base, action what);
  bool step();
  bool opened();
  void collect_values();
  [[nodiscard]] mismatch_error found() const;

  negotiation* owner_;  // null once it has ended
  [[nodiscard]] bool same(std::size_t value) const noexcept {
    return compared_[2 * value] == ~compared_[2 * value + 1];
  }

  int stage_ = 0;
  std::unique_ptr<comm::creation> creation_;  // under way
  communicator for_slots_;
  communicator for_device_;
  std::vector<std::uint64_t> values_;
  std::vector<std::string> fields_;                           // their names
  std::vector<std::pair<std::string, std::uint64_t>> facts_;  // of the backend for devices
  std::vector<std::int64_t> compared_;
  std::vector<std::uint64_t> gathered_;
};

template <class Any>
protocol::tree negotiation<Any>::make_tree(const communicator& parent,
                                           const coordinator_options& options) {
  const int radix = static_cast<int>(options.radix);
  const auto& bells = parent.state()->bells;
  if (!bells) return protocol::tree::balanced(parent.rank(), parent.size(), radix);
  std::vector<int> node_of;
  for (int rank = 0; rank < parent.size(); ++rank) {
    node_of.push_back(bells->node_of(parent.state()->bell_rank(rank)));
  }
  return protocol::tree::node_aware(parent.rank(), node_of, radix);
}

template <class Any>
protocol::node_options negotiation<Any>::node_options_of(const coordinator_options& options) {
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

template <class Any>
negotiation<Any>::negotiation(const communicator& parent, const coordinator_options& options,
                              std::shared_ptr<comm::any_backend> backend,
                              std::shared_ptr<comm::device_backend> device)
    : instance(parent, options),
      parent_(parent),
      source_(parent.state()->source),
      backend_(std::move(backend)),
      device_(std::move(device)),
      node_(make_tree(parent, options), std::vector<rank_set>{rank_set::span(0, parent.size() - 1)},
            node_options_of(options)),
      plane_(*this, options_, options.slots),
      timeline_(std::make_shared<timeline>(parent.rank(), parent.size())),
      channel_(*this, {.fragment = static_cast<std::size_t>(options.control_message)}) {}

template <class Any>
negotiation<Any>::~negotiation() {
  const comm::request_source::guard hold(source_);
  source_.forget(*this);
}

template <class Any>
std::shared_ptr<negotiation<Any>> negotiation<Any>::make(
    const communicator& parent, const coordinator_options& options,
    std::shared_ptr<comm::any_backend> backend, std::shared_ptr<comm::device_backend> device) {
  if (!parent) throw error(errc::invalid_communicator, "coordinator");
  std::shared_ptr<negotiation> one;
  std::exception_ptr refused;
  try {
    const coordinator_options own = with_environment(options);
    validate(own);
    one = std::make_shared<negotiation>(parent, own, std::move(backend), std::move(device));
  } catch (const error& problem) {  // the others wait for this rank: it opens one to tell them
    refused = std::current_exception();
    one = std::make_shared<negotiation>(parent, coordinator_options(), nullptr);
    one->refused_ = problem.what();
  }
  asio::use_service<progress::kept_until_closed<instance>>(one->engine_.context()).add(one);
  {
    const comm::request_source::guard hold(one->source_);
    one->source_.watch(*one);
  }
  if (one->device_) one->device_->attach(parent);
  one->open();
  if (refused) std::rethrow_exception(refused);
  return one;
}

template <std::same_as<communicator> Communicator>
std::shared_ptr<instance> open_instance(const Communicator& parent,
                                        const coordinator_options& options,
                                        std::shared_ptr<comm::any_backend> backend,
                                        std::shared_ptr<comm::device_backend> device) {
  return negotiation<void>::make(parent, options, std::move(backend), std::move(device));
}

template <class Any>
void negotiation<Any>::open() {
  if (!options_.timeline.empty()) {
    if (const std::error_code bad = record_timeline(options_.timeline)) {
      log::write(log::level::warning, "timeline " + options_.timeline + ": " + bad.message());
    }
  }
  const comm::request_source::guard hold(source_);
  const errc bad = source_.usable();
  if (bad != errc{}) return break_down(std::make_exception_ptr(error(bad, "coordinator")));
  auto* steps = new opening(*this);
  ++openings_;
  steps->begin(parent_);
  engine_.started();
}

// All of it is stages of one operation, inside the look: also a context that goes away while a
// coordinator is being opened can see it through, for the other ranks wait for it.

template <class Any>
bool negotiation<Any>::opening::advanced(request_operation* base) {
  auto* self = static_cast<opening*>(base);
  negotiation& owner = *self->owner_;
  bool goes_on = false;
  try {
    goes_on = self->step();
  } catch (...) {
    owner.break_down(std::current_exception());
  }
  if (goes_on) return true;
  self->owner_ = nullptr;
  --owner.openings_;
  owner.check_released();
  return false;
}

template <class Any>
void negotiation<Any>::opening::run(operation* base, action) {
  delete static_cast<opening*>(base);
}

template <class Any>
bool negotiation<Any>::opening::step() {
  negotiation& owner = *owner_;
  const bool goes_on = creation_ && creation_->goes_on([&](mpi::comm made) {
    mpi::comm exchange = made.dup();
    if (owner.control_) {
      for_device_ = communicator::adopt(owner.control_, std::move(made), std::move(exchange));
      return;
    }
    mpi::comm slot = made.dup();
    mpi::comm other_slot = made.dup();
    owner.control_ = communicator::adopt(owner.parent_, std::move(made), std::move(exchange));
    for_slots_ = communicator::adopt(owner.control_, std::move(slot), std::move(other_slot));
  });
  if (goes_on) return true;
  creation_.reset();
  if (failed()) throw std::system_error(error(), "coordinator");
  MPI_Request request = MPI_REQUEST_NULL;
  switch (stage_++) {
    case 0: {
      // The largest of each value and of its complement tell of the same value where all agree.
      for (const std::uint64_t value : values_) {
        const auto number = static_cast<std::int64_t>(value >> 1U ^ value << 63U);
        compared_.push_back(number);
        compared_.push_back(~number);
      }
      mpi::check(mpi::post::iallreduce(MPI_IN_PLACE, compared_.data(),
                                       static_cast<MPI_Count>(compared_.size()), MPI_INT64_T,
                                       MPI_MAX, owner.control_.native(), &request),
                 "MPI_Iallreduce");
      owner.source_.add(request, *this);
      return true;
    }
    case 1: {
      const bool refusals = !owner.refused_.empty() || !same(0);
      bool all_same = !refusals;
      for (std::size_t i = 0; i < values_.size(); ++i) all_same = all_same && same(i);
      if (all_same) {
        stage_ = 3;
        if (!owner.device_) return opened();
        begin(owner.control_);
        return true;
      }
      // The digest of the facts says no more; their values do, where all ranks have the same facts.
      const bool same_facts = same(values_.size() - 2);
      values_.pop_back();
      for (const auto& [name, value] : facts_) {
        if (!same_facts) break;
        fields_.push_back(name);
        values_.push_back(value);
      }
      if (refusals) {  // only these are told of, for what else such a rank has are defaults
        fields_.clear();
        values_.assign(longest_refusal / sizeof(std::uint64_t), 0);
        std::memcpy(values_.data(), owner.refused_.data(),
                    std::min(owner.refused_.size(), longest_refusal));
      }
      const auto count = static_cast<MPI_Count>(values_.size());
      gathered_.resize(values_.size() * static_cast<std::size_t>(owner.size_));
      mpi::check(mpi::post::iallgather(values_.data(), count, MPI_UINT64_T, gathered_.data(), count,
                                       MPI_UINT64_T, owner.control_.native(), &request),
                 "MPI_Iallgather");
      owner.source_.add(request, *this);
      return true;
    }
    case 2:
      owner.break_down(std::make_exception_ptr(found()), !owner.refused_.empty());
      return false;
    default:
      return opened();
  }
}

/// What the ranks have told of options that some refuse, or that differ.
template <class Any>
mismatch_error negotiation<Any>::opening::found() const {
  const int self = owner_->rank_;
  if (!fields_.empty()) {
    return differing_options(
        self, "coordinator", fields_, gathered_, [](const auto& field, auto value) {
          if (!field.starts_with("backend")) return std::to_string(value);  // of such, letters
          std::array<char, sizeof(value) + 1> letters{};
          std::memcpy(letters.data(), &value, sizeof(value));
          return value == 0 ? std::string("none") : std::string(letters.data());
        });
  }
  std::map<std::string, rank_set> causes;
  const char* at = reinterpret_cast<const char*>(gathered_.data());
  for (int from = 0; from < owner_->size_; ++from, at += longest_refusal) {
    const char* const end = std::find(at, at + longest_refusal, '\0');
    if (at != end) causes[std::string(at, end)].insert(from);
  }
  return refused_options(self, "coordinator", causes);
}

template <class Any>
bool negotiation<Any>::opening::opened() {
  owner_->slots_made(std::move(for_slots_));
  if (for_device_ && !owner_->broken_) owner_->open_device(std::move(for_device_));
  return false;
}

template <class Any>
void negotiation<Any>::opening::begin(const communicator& over) {
  creation_ = std::make_unique<comm::creation>(*over.state(), *this);
  creation_->begin();
}

/// A digest of why this rank refuses its options, the rows of the table, a digest of the frozen
/// plan, the first letters of the backend for the host, and of the backend for devices these, the
/// names of its facts and their values: as many numbers on every rank.
template <class Any>
void negotiation<Any>::opening::collect_values() {
  constexpr std::uint64_t nothing = 14695981039346656037U;
  const auto mix = [](std::uint64_t& digest, std::uint64_t value) {
    digest = (digest ^ value) * 1099511628211U;
  };
  const auto mix_text = [&mix](std::uint64_t& digest, std::string_view text) {
    for (const char c : text) mix(digest, static_cast<unsigned char>(c));
    mix(digest, 256U);
  };
  std::uint64_t refusal = nothing;
  mix_text(refusal, owner_->refused_);
  fields_.emplace_back("options");
  values_.push_back(refusal);
  for (const option_row& row : option_table()) {
    fields_.emplace_back(row.name);
    values_.push_back(row.get(owner_->options_));
  }
  std::uint64_t plan = nothing;
  for (const auto& pack : owner_->options_.frozen_plan) {
    for (const std::string& name : pack) mix_text(plan, name);
    mix(plan, 257U);
  }
  fields_.emplace_back("frozen_plan");
  values_.push_back(plan);
  const auto letters = [](std::string_view name) {
    std::uint64_t first = 0;
    std::memcpy(&first, name.data(), std::min(name.size(), sizeof(first)));
    return first;
  };
  fields_.emplace_back("backend for the host");
  values_.push_back(owner_->backend_ ? letters(owner_->backend_->name()) : 0);
  std::uint64_t backend = 0;
  std::uint64_t names = nothing;
  std::uint64_t facts = nothing;
  if (owner_->device_) {
    const std::string_view name = owner_->device_->name();
    backend = letters(name);
    mix_text(names, name);
    owner_->device_->facts(facts_);
    for (const auto& [fact, value] : facts_) {
      mix_text(names, fact);
      mix(facts, value);
    }
  }
  fields_.emplace_back("backend");
  fields_.emplace_back("facts of the backend");
  values_.insert(values_.end(), {backend, names, facts});
}

template <class Any>
void negotiation<Any>::slots_made(communicator made) {
  slots_ = std::move(made);
  const comm::request_source::guard hold(source_);
  std::vector<MPI_Comm> slots{slots_.state()->data.native(), slots_.state()->exchange.native()};
  slots.resize(options_.slots);
  plane_.open(*control_.state(),
              {0, rank_, size_, control_.state()->exchange.native(), std::move(slots)},
              backend_.get(), device_.get());
  std::vector<int> neighbours = node_.shape().children();
  if (!node_.shape().is_root()) neighbours.insert(neighbours.begin(), node_.shape().parent());
  for (const int rank : neighbours) edges_.push_back({rank});
  ready_ = true;
  try {
    if (!neighbours.empty()) channel_.open(control_, neighbours);
  } catch (const std::system_error& problem) {
    return break_down(std::make_exception_ptr(problem));
  }
  if (rank_ == 0) log::write(log::level::debug, "coordinator: " + describe(options_));
  touch();
}

}  // namespace cohort::coordination
