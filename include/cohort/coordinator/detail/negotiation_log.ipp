// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the log says is done: data is started, failures are told.

#include <cohort/coordinator/negotiation.hpp>

#include <cohort/coordinator/bundle.hpp>
#include <cohort/core/log.hpp>

#include <algorithm>

namespace cohort::coordination {

template <class Any>
void negotiation<Any>::perform() {
  using protocol::action_kind;
  for (std::size_t i = 0; i < node_.actions().size(); ++i) {
    const protocol::action one = node_.actions()[i];
    switch (one.kind) {
      case action_kind::start:
        start(one);
        break;
      case action_kind::start_join:
        start_join(one);
        break;
      case action_kind::fail:
      case action_kind::fail_join:
        fail(one);
        break;
      case action_kind::report:
        report(node_.report_of(one));
        break;
      case action_kind::renumber:
        for (task* each = first_; each != nullptr; each = each->after) {
          if (each->name == one.name) each->epoch -= one.number;
        }
        break;
      case action_kind::drain:
        drain_group(one);
        break;
      case action_kind::end_set:
        ended_.push_back(one.set);
        touch();
        break;
      case action_kind::close:
        if (one.detail != protocol::none) {
          if (!fault_) fault_ = *node_.verdict_of(one);
          faulted_ = closed_by_fault_ = keeps_ = true;
          close_by_fault();
        }
        break;
    }
  }
  node_.clear_actions();
  plane_.traced = timeline_->active();
  if (faulted_) close_by_fault();  // what is elected after it is not started here
  plane_.run();
  for (const auto& group : groups_) {
    if (group->plane_.waiting() != 0) group->plane_.run();
  }
  if (unplaced_ != 0) place_set();
}

/// To an all_gather of a bundle in device memory.
COHORT_INLINE void bring_nothing(neutral_task& one, const protocol::signature& sig) {
  const auto members = parse_members(sig.members);
  if (!members) {
    throw protocol::protocol_error(protocol::fault::malformed, "a bundle of '" + sig.members + "'");
  }
  one.told = members->size();
  one.row_bytes = 1;
  one.others.resize(members->size() - 1);
  for (std::size_t i = 0; i < members->size(); ++i) {
    tensor& each = i == 0 ? one.first : one.others[i - 1];
    each.kernels = kernels_for((*members)[i].element);
  }
}

template <class Any>
std::unique_ptr<neutral_task> negotiation<Any>::make_neutral(const protocol::signature& sig,
                                                             view& set) {
  auto one = std::make_unique<neutral_task>(sig);
  one->view = &set;
  one->root = set.inside(sig.root);
  const std::size_t count = static_cast<std::size_t>(sig.dimensions.elements());
  tensor& only = one->first;
  only.kernels = sig.element == 255 ? &kernels_of<std::byte> : kernels_for(sig.element);
  only.count = sig.element == 255 ? count * sig.element_size : count;
  if (sig.kind == op_kind::barrier) only = tensor{};
  if (sig.kind == op_kind::message) {
    one->sends = one->root == set.rank();
    one->peer = one->sends ? set.inside(static_cast<int>(sig.detail)) : one->root;
  }
  const bool on_device = sig.space != memory_space::host;  // its backend brings them
  if (protocol::is_sized(sig.kind)) {
    one->row_bytes = count * sig.element_size;
    if (!on_device) one->make_result = &neutral_task::own_result;
    only.count = 0;
    if (on_device && !sig.members.empty()) bring_nothing(*one, sig);
    return one;
  }
  if (!sig.members.empty() && sig.detail == 0) {  // else one block of bytes
    const auto members = parse_members(sig.members);
    if (!members) {
      throw protocol::protocol_error(protocol::fault::malformed,
                                     "a bundle of '" + sig.members + "'");
    }
    one->others.resize(members->size() - 1);
    for (std::size_t i = 0; i < members->size(); ++i) {
      tensor& each = i == 0 ? only : one->others[i - 1];
      each.kernels = kernels_for((*members)[i].element);
      each.count = static_cast<std::size_t>((*members)[i].count);
    }
  }
  if (on_device) return one;
  // reduce_scatter has its result behind its input.
  const std::size_t parts = sig.kind == op_kind::reduce_scatter ? 2 : 1;
  const auto room_of = [](const tensor& what) { return (what.bytes() + 63) / 64 * 64; };
  std::size_t room = 64;
  for (std::size_t i = 0; i < one->tensors(); ++i) {
    if ((*one)[i].kernels != nullptr) room += parts * room_of((*one)[i]);
  }
  one->memory.resize(room);
  std::byte* at = one->memory.data();
  for (std::size_t i = 0; i < one->tensors(); ++i) {
    tensor& each = i == 0 ? only : one->others[i - 1];
    if (each.kernels == nullptr) continue;
    each.in = at;
    each.out = parts == 2 ? at + room_of(each) : at;
    if (each.kernels->operation != nullptr) each.operation = each.kernels->operation(one->code);
    if (each.kernels->fill != nullptr) each.kernels->fill(at, each.count, one->code);
    at += parts * room_of(each);
  }
  if (sig.kind == op_kind::reduce_scatter && sig.members.empty()) {
    const auto rows = sig.dimensions.size() == 0 ? std::int64_t{1} : sig.dimensions[0];
    const auto row = rows == 0 ? std::int64_t{0} : static_cast<std::int64_t>(count) / rows;
    const int ranks = set.size();
    for (int rank = 0; rank < ranks; ++rank) {
      one->sizes.push_back((rows / ranks + (rank < rows % ranks ? 1 : 0)) * row);
    }
  }
  return one;
}

// What is to be started is in a pack or not marked as started, whatever lacks memory here: so
// somebody ends it.
template <class Any>
void negotiation<Any>::start(const protocol::action& one) {
  const protocol::entry_record& entry = node_.entry(one.entry);
  if (node_.name(one.name).listed && entry.sig.kind != op_kind::message) {
    return listed_elected(*reinterpret_cast<task*>(one.token), one);
  }
  task* own = task_of(one.token);
  std::unique_ptr<neutral_task> neutral;
  view& set = own == nullptr ? view_of(one.set) : *own->view;
  if (own == nullptr) neutral = make_neutral(entry.sig, set);
  if (pack_ == nullptr) {
    pack_ = &plane_.make(set.place);
    pack_->log_count = one.log_count;
    pack_->elected = now();
  }
  task* const what = own == nullptr ? neutral.get() : own;
  pack_->tasks.push_back(what);
  static_cast<void>(neutral.release());
  if (own != nullptr) {
    own->started = true;
    own->withdrawn = false;  // that came too late; a device is told of the deadline anew
    if (own->linked) {       // else nobody asks for its name
      watch_operation(*own);
      own->holds_name = true;
      node_.hold(own->name);
    }
  }
  what->contributors = one.count;
  if (protocol::is_sized(entry.sig.kind)) {
    pack_->known = one.known;
    if (one.known) {
      pack_->rows = sizes_.at(one.entry);
    } else {
      ++set.counted.size_exchanges;
      pack_->rows = std::make_shared<size_vector>();
      pack_->rows->log_count = one.log_count;
      if (protocol::is_cached(entry.sig)) sizes_[one.entry] = pack_->rows;
    }
  }
  if (!one.last) return;
  if (pack_->tasks.size() > 1) {
    ++set.counted.packs;
    set.counted.packed += pack_->tasks.size();
  }
  plane_.push(*pack_);
  pack_ = nullptr;
}

template <class Any>
void negotiation<Any>::start_join(const protocol::action& one) {
  view& set = view_of(one.set);
  pack_ = &plane_.make(set.place);
  pack_->is_join = true;
  pack_->log_count = one.log_count;
  pack_->newest = one.count;
  pack_->elected = now();
  task* const mine = std::exchange(set.joining, nullptr);
  std::unique_ptr<neutral_task> neutral;
  if (mine == nullptr) {
    neutral = std::make_unique<neutral_task>(protocol::signature());
    neutral->view = &set;
  }
  pack_->tasks.push_back(mine == nullptr ? neutral.get() : mine);
  static_cast<void>(neutral.release());
  if (mine != nullptr) {
    mine->watched.begin(tools::category::operation, tools::literal("join"));
    mine->started = true;
  }
  plane_.push(*pack_);
  pack_ = nullptr;
}

template <class Any>
void negotiation<Any>::fail(const protocol::action& one) {
  const bool is_join = one.kind == protocol::action_kind::fail_join;
  auto* own = is_join ? std::exchange(view_of(one.set).joining, nullptr) : task_of(one.token);
  if (own == nullptr) return;
  const protocol::verdict& why = *node_.verdict_of(one);
  const std::string_view name = is_join ? "join" : protocol::own_name(node_.name(one.name).text);
  const std::string_view verb = is_join ? "join" : own->verb();
  if (timeline_->active()) trace_failure(*own, name);
  std::optional<protocol::withdrawal_reason> withdrawn;
  if (one.withdrew) withdrawn = one.own_reason;
  own->fail(error_of(*own->view, name, verb, why, withdrawn));
  complete(*own);
}

/// A stream goes on with what was queued behind an operation that has failed.
template <class Any>
const char* negotiation<Any>::undefined_on_device() const noexcept {
  if (!device_) return "";
  return "; on devices, what was to be written and what is queued behind it is undefined";
}

template <class Any>
std::exception_ptr negotiation<Any>::error_of(const view& set, std::string_view name,
                                              std::string_view verb, const protocol::verdict& told,
                                              std::optional<protocol::withdrawal_reason> own,
                                              const char* besides) const {
  using protocol::failure_kind;
  const protocol::verdict why = set.inside(told);
  const int rank = set.rank();
  std::string text = "rank " + std::to_string(rank) + ": " + std::string(verb) + " " +
                     describe(name, why) + besides;
  stall_facts facts{why.ready.list(), why.missing.list(), why.silent.list(), why.unknown.list()};
  switch (why.kind) {
    case failure_kind::mismatch: {
      std::vector<std::string> fields;
      std::vector<mismatch_error::side> sides;
      for (const protocol::side& each : why.sides) {
        sides.push_back({each.ranks.list(), {}, each.site.str()});
      }
      for (const protocol::difference& one : protocol::differences(why.sides)) {
        fields.push_back(one.field);
        for (std::size_t i = 0; i < sides.size(); ++i) sides[i].values.push_back(one.values[i]);
      }
      if (fields.empty()) fields.emplace_back("signature");
      return std::make_exception_ptr(mismatch_error(std::move(fields), std::move(sides), text));
    }
    case failure_kind::withdrawn:
      if (own) {
        using protocol::withdrawal_reason;
        if (why.rank != rank) text += "; this rank withdrew it too";
        switch (*own) {
          case withdrawal_reason::cancelled:
            return std::make_exception_ptr(std::system_error(asio::error::operation_aborted, text));
          case withdrawal_reason::duplicate:
            return std::make_exception_ptr(error(errc::duplicate_name, text));
          case withdrawal_reason::invalid:
            return std::make_exception_ptr(error(errc::invalid_argument, text));
          case withdrawal_reason::deadline:
          case withdrawal_reason::no_decision:
            return std::make_exception_ptr(deadline_error(std::move(facts), text));
        }
      }
      return std::make_exception_ptr(withdrawn_error(
          why.rank, std::string(protocol::name_of(why.reason)), std::move(facts), text));
    case failure_kind::joined:
      return std::make_exception_ptr(joined_error(why.ranks.list(), text));
    case failure_kind::peer_lost:
      return std::make_exception_ptr(peer_lost_error(why.ranks.list(), text));
    case failure_kind::data:
      return std::make_exception_ptr(data_error({why.rank}, text + undefined_on_device()));
  }
  return std::make_exception_ptr(error(errc::data_operation_failed, text));
}

// After a fault what is elected and has not started here will never run, and what has goes on with
// the parts that are posted. What was being filled in when memory ran out may have no task yet.
template <class Any>
void negotiation<Any>::close_by_fault() {
  if (pack_ != nullptr) {
    end_by_fault(*pack_, false);
    plane_.recycle(*std::exchange(pack_, nullptr));
  }
  end_makers(nullptr);
  const auto drop = [this](execution& one) { end_by_fault(one, false); };
  plane_.drop_waiting(drop);
  fail_device();
  if (!broken_) plane_.post_no_more(errc::data_operation_failed);
  for (const auto& group : groups_) {
    group->plane_.drop_waiting(drop);
    if (!broken_) group->plane_.post_no_more(errc::data_operation_failed);
    for (const auto& [held, number] : std::exchange(group->held_, {})) {
      held->fail(fault_of(*held));  // nobody will say which starts are good
      complete(*held);
    }
  }
}

/// What a task ends with after a fault, or after this instance has broken down.
template <class Any>
std::exception_ptr negotiation<Any>::fault_of(const task& one) const {
  if (broken_) return broken_;
  if (one.name == protocol::none) return error_of(*one.view, "join", "join", *fault_);
  return error_of(*one.view, given_name(one), one.verb(), *fault_);
}

/// The memory of what nobody awaits stays where MPI still works on it.
template <class Any>
void negotiation<Any>::end_by_fault(execution& what, bool given_up) {
  for (task* each : what.tasks) {
    if (each->linked) {
      each->fail(fault_of(*each));
      complete(*each);
    } else if (!given_up) {
      each->destroy();
    }
  }
}

template <class Any>
std::size_t negotiation<Any>::under_way() const noexcept {
  std::size_t all = plane_.under_way();
  for (const auto& group : groups_) all += group->plane_.under_way();
  return all;
}

// A collective that a rank has not joined never ends, and MPI cannot be told to forget it.
template <class Any>
void negotiation<Any>::give_up_data(bool all, bool devices) {
  const std::size_t before = under_way();
  const auto end = [this](execution& one) { end_by_fault(one, true); };
  plane_.give_up(all, devices, end);
  for (const auto& group : groups_) group->plane_.give_up(all, devices, end);
  if (under_way() == before) return;
  keeps_ = true;
  touch();
  check_released();
}

/// All ranks have closed after a fault, so none starts anything any more.
template <class Any>
void negotiation<Any>::settle() {
  if (settled_) return;
  settled_ = true;
  for (std::size_t child = edges_.size() - node_.shape().children().size(); child < edges_.size();
       ++child) {
    edges_[child].settles = true;
  }
  try {
    flush();
  } catch (...) {
    break_down(std::current_exception());
  }
}

template <class Any>
void negotiation<Any>::data_done(execution& what) noexcept {
  const bool traced = timeline_->active();
  const auto end = now();
  const auto set = static_cast<std::uint32_t>(what.tasks.front()->view->id);
  if (traced) {
    const std::string_view verb = what.is_join ? "join" : what.tasks.front()->verb();
    for (const execution::span& one : what.spans()) {
      timeline_->span(one.what, verb, 0, set, what.log_count, one.begin, one.end, one.bytes);
    }
    timeline_->data(verb, set, what.log_count, what.tasks.size(), what.bytes(), what.begun, end,
                    what.on_device() ? device_->name() : std::string_view("mpi"));
  }
  for (task* each : what.tasks) {
    if (what.is_join) {
      each->number = what.newest_rank();
    } else if (protocol::is_persistent(each->kind) && each->context != nullptr) {
      group_elected(*each);  // of one that was given up as well: its starts may have to be made up
    }
    if (!each->linked) {
      each->destroy();
      continue;
    }
    if (traced) {
      const std::string_view name = what.is_join ? "join" : given_name(*each);
      const auto epoch = static_cast<std::uint64_t>(each->epoch);
      timeline_->span(phase::negotiate, name, epoch, set, what.log_count, each->submitted,
                      what.elected);
      timeline_->span(phase::queue, name, epoch, set, what.log_count, what.elected, what.begun);
    }
    complete(*each);
  }
  if (node_.shape().is_root()) done_ += what.tasks.size();
  if (done_ != 0 || whole().left || broken_ || plane_.waiting() != 0 || !adding_.empty() ||
      !ended_.empty()) {
    touch();
  }
}

/// It has been elected.
template <class Any>
void negotiation<Any>::watch_operation(task& one) const noexcept {
  if (!tools::watched()) [[likely]] {
    return;
  }
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < one.tensors(); ++i) {
    if (one[i].kernels != nullptr) bytes += one[i].bytes();
  }
  one.watched.begin(tools::category::operation, {given_name(one)}, bytes);
}

template <class Any>
void negotiation<Any>::trace_failure(const task& one, std::string_view name) {
  timeline_->span(phase::negotiate, name, static_cast<std::uint64_t>(one.epoch),
                  static_cast<std::uint32_t>(one.view->id), 0, one.submitted, now());
}

// The others must not wait for what MPI still has here, for that may need a part of theirs.
template <class Any>
void negotiation<Any>::data_broke(execution& what, std::error_code why) noexcept {
  if (faulted_ || broken_) return;
  const std::string_view verb = what.is_join ? "join" : what.tasks.front()->verb();
  const std::string cause =
      std::string(verb) + " #" + std::to_string(what.log_count) + ": " + why.message();
  const std::string text = "rank " + std::to_string(rank_) + ": " + cause + undefined_on_device();
  log::write(log::level::error, text);
  for (task* each : what.tasks) {
    if (each->linked) each->fail(std::make_exception_ptr(data_error({rank_}, text)));
  }
  fault_.emplace();
  fault_->kind = protocol::failure_kind::data;
  fault_->rank = rank_;
  fault_->text = cause;
  node_.data_failed(cause);
  faulted_ = true;
  close_by_fault();
  touch();
}

template <class Any>
void negotiation<Any>::data_failed(execution& what, std::error_code why) noexcept {
  data_broke(what, why);
  end_by_fault(what, false);
  if (broken_) touch();  // which may have waited for this alone
}

}  // namespace cohort::coordination
