// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Persistent groups and process sets.

#include <cohort/comm/joint.hpp>
#include <cohort/coordinator/negotiation.hpp>

#include <cohort/coordinator/bundle.hpp>

#include <algorithm>

namespace cohort::coordination {

// ---- persistent groups --------------------------------------------------------------------------

template <class Any>
std::shared_ptr<group_state> negotiation<Any>::add_group(task& one, std::string_view name,
                                                         protocol::signature sig,
                                                         const std::source_location& site) {
  if (!one.view->is_whole()) {
    one.fail(std::make_exception_ptr(
        error(errc::not_supported, "persistent group '" + std::string(name) +
                                       "' of a process set of a coordinator for devices")));
  }
  auto group = std::make_shared<persistent_state>(*this, *one.view);
  if (one.wanted != compression::none) compress<Any>(one, name, sig);
  if (one.space != memory_space::host) {
    one.take(sig);
    try {
      if (!one.error) require_device(one, name, sig);
      sig.places = find_places(one);
    } catch (...) {
      one.fail(std::current_exception());
    }
    one.space = memory_space::host;  // of what makes the group
    group->device_ = std::move(one.device);
  }
  group->sig_ = sig;
  group->text_ = name;
  group->site_ = site;
  for (std::size_t i = 0; i < one.tensors(); ++i) group->members_.push_back(one[i]);
  // A creation moves no data: the collective is the making of the communicator.
  one.kind = sig.kind = op_kind::group_create;
  one.context = group.get();
  one.made = group->device_ ? nullptr : &group->made;
  {
    const comm::request_source::guard hold(source_);
    groups_.push_back(group);
  }
  submit(one, name, sig, site, std::chrono::nanoseconds::zero());
  return group;
}

/// Its communicator is there.
template <class Any>
void negotiation<Any>::group_elected(task& own) {
  auto& group = *static_cast<persistent_state*>(own.context);
  if (own.kind == op_kind::group_remove) {
    group.removed_ = true;
    if (group.device_) group.device_->buffers.clear();  // and with them the memory
    return;
  }
  if (group.device_) {
    group.name_ = own.name;
    return;
  }
  try {
    group.comm_ = mpi::comm::adopt(group.made);
  } catch (...) {
    own.fail(std::current_exception());
    return;
  }
  group.name_ = own.name;
  group.place_ = {
      0, group.view_.rank(), group.view_.size(), group.comm_.native(), {group.comm_.native()}};
  group.plane_.open(*control_.state(), nullptr);
}

template <class Any>
void negotiation<Any>::start_group(task& one, group_state& which) {
  auto& group = static_cast<persistent_state&>(which);
  one.take(group.sig_);
  one.first = group.members_.front();
  one.others.assign(group.members_.begin() + 1, group.members_.end());
  if (group.device_) return start_on_device(one, group);
  if (one.device) {
    one.fail(std::make_exception_ptr(
        error(errc::not_supported, capture_text(one, group) + ": it is in memory of the host")));
    const comm::request_source::guard hold(source_);
    ++one.view->counted.submitted;
    return complete(one);
  }
  {
    const comm::request_source::guard hold(source_);
    ++one.view->counted.submitted;
    std::optional<std::uint64_t> number;
    // After a fault here its collective would be taken for the one that has failed.
    if (!broken_ && !faulted_ && group.name_ != protocol::none && !group.removed_) {
      number = node_.start_group(group.name_);
    }
    if (!number) {
      if (broken_) {
        one.fail(broken_);
      } else if (faulted_) {
        one.fail(error_of(*one.view, group.text_, protocol::name_of(group.sig_.kind), *fault_));
      } else {
        one.fail(refusal(group.text_));
      }
      return complete(one);
    }
    one.name = group.name_;
    one.epoch = static_cast<protocol::epoch>(*number);
    one.started = true;
    one.submitted = now();
    watch_operation(one);
    link(one);
    group.push(one, *number);
  }
  engine_.started();
}

template <class Any>
void negotiation<Any>::persistent_state::push(task& one, std::uint64_t number) {
  one.contributors = static_cast<std::uint64_t>(view_.size());
  execution& what = plane_.make(place_);
  what.log_count = number;
  what.elected = owner_.now();
  what.tasks.push_back(&one);
  plane_.push(what);
  plane_.run();
}

template <class Any>
void negotiation<Any>::remove_group(task& one, group_state& which,
                                    const std::source_location& site) {
  auto& group = static_cast<persistent_state&>(which);
  protocol::signature sig = group.sig_;
  {
    const comm::request_source::guard hold(source_);
    if (group.name_ == protocol::none || group.removed_) {
      one.fail(refusal(group.text_));
      return complete(one);
    }
    // [protocol H5]
    sig.detail = group.device_ ? group.starts_ : node_.group_starts(0, group.text_);
  }
  one.kind = sig.kind = op_kind::group_remove;
  one.context = &group;
  submit(one, group.text_, sig, site, std::chrono::nanoseconds::zero());
}

// [protocol H4] Each rank makes up the starts that others have made, which completes these inside
// MPI.
template <class Any>
void negotiation<Any>::drain_group(const protocol::action& one) {
  if (faulted_) return;
  for (const auto& group : groups_) {
    if (group->name_ != one.name) continue;
    group->good_ = one.count;
    for (auto number = static_cast<std::uint64_t>(one.number); number < one.log_count; ++number) {
      group->push(*make_neutral(group->sig_, group->view_).release(), number);
    }
    for (const auto& [held, number] : std::exchange(group->held_, {})) {
      group->end(*held, number);
    }
  }
}

template <class Any>
void negotiation<Any>::persistent_state::end(task& one, std::uint64_t number) noexcept {
  if (number >= good_) {
    one.fail(std::make_exception_ptr(
        peer_lost_error(owner_.node_.log().departed.list(),
                        "rank " + std::to_string(owner_.rank_) + ": persistent group '" + text_ +
                            "' start " + std::to_string(number) + ": a rank has left without it")));
  }
  owner_.complete(one);
}

template <class Any>
void negotiation<Any>::persistent_state::data_done(execution& what) noexcept {
  for (task* each : what.tasks) {
    if (!each->linked) {
      each->destroy();
    } else if (owner_.node_.holds_group_completions()) {
      if (!owner_.faulted_) {
        held_.emplace_back(each, what.log_count);
        continue;
      }
      each->fail(owner_.fault_of(*each));  // nobody will say whether it is good
      owner_.complete(*each);
    } else {
      end(*each, what.log_count);
    }
  }
  owner_.touch();
}

template <class Any>
void negotiation<Any>::persistent_state::data_broke(execution& what, std::error_code why) noexcept {
  owner_.data_broke(what, why);
}

template <class Any>
void negotiation<Any>::persistent_state::data_failed(execution& what,
                                                     std::error_code why) noexcept {
  owner_.data_failed(what, why);
}

// ---- process sets -------------------------------------------------------------------------------

template <class Any>
void negotiation<Any>::add_set(task& one) {
  const auto& record = *static_cast<creation*>(one.context);
  {
    const comm::request_source::guard hold(source_);
    ++one.view->counted.submitted;
    rank_set listed;
    for (const int rank : record.members) listed.insert(rank);
    if (broken_) {
      one.fail(broken_);
      return complete(one);
    }
    if (listed.empty() || listed.back() >= size_) {
      one.fail(std::make_exception_ptr(error(
          errc::bad_rank,
          "add_process_set: ranks " + record.members.str() + " of " + std::to_string(size_))));
      return complete(one);
    }
    if (!listed.contains(rank_)) return complete(one);
    protocol::signature sig;
    sig.kind = op_kind::barrier;
    sig.flags = protocol::signature_flag::alone;
    sig.members = record.members.str();  // in the order given: it decides who is which rank
    one.kind = op_kind::barrier;
    const bool confirms = record.id != 0;
    if (confirms && device_) sig.kind = op_kind::set_add;  // one log for all sets [protocol D1]
    const std::string name = protocol::listed_name(
        listed, confirms ? "make " + std::to_string(record.id) : std::string("add"));
    const auto result = node_.submit(0, name, sig, reinterpret_cast<std::uint64_t>(&one));
    if (result.status == protocol::submission_status::refused) {
      one.fail(refusal("add_process_set"));
      return complete(one);
    }
    if (result.status == protocol::submission_status::failed) {
      one.fail(error_of(*one.view, "add_process_set", "add_process_set", *result.why));
      return complete(one);
    }
    one.name = result.name;
    one.epoch = result.number;
    one.operation_ref = result.operation;
    if (!confirms) {
      one.submitted = now();
      link(one);
    } else if (one.withdrawn) {
      node_.withdraw(one.operation_ref, one.withdrawn_for, nanoseconds(clock::now()));
    }
    if (!ready_) return;
    source_.at_next_look(*this);
    stay_awake();
  }
  engine_.started();
}

/// All listed members have asked for it; or have said that what came before is complete.
template <class Any>
void negotiation<Any>::listed_elected(task& own, const protocol::action& at) {
  auto& record = *static_cast<creation*>(own.context);
  if (node_.shape().is_root()) {
    ++done_;
    touch();
  }
  if (record.id == 0) {
    if (!own.linked) return own.destroy();  // this rank has left, and confirms nothing
    record.id = at.log_count;
    own.undecided = {};  // if it has been withdrawn, that came too late, and is asked for again
    adding_.push_back(&own);
  } else {
    if (at.made != protocol::none) record.number = at.made;
    auto opening = open_set(own);
    making_.push_back(&own);
    if (device_) {
      unplaced_ = record.number;
      plane_.hold_behind(at.log_count);
    }
    own.started = true;
    ++openings_;
    progress::begin_look_task(std::move(opening), {.verb = "add_process_set"},
                              [this, &own](const std::exception_ptr& why) {
                                const comm::request_source::guard held(source_);
                                std::erase(making_, &own);
                                if (why && !broken_) set_not_made(own, why);
                                --openings_;
                                check_released();
                              });
  }
}

// With a backend for devices one after the other, in the order of the log, each when the one before
// is open: making a set blocks in MPI, and what the backend makes meanwhile would wait for ranks
// that are blocked there.
template <class Any>
void negotiation<Any>::confirm_sets() {
  for (std::size_t i = 0; i < adding_.size();) {
    if (device_ && (whole().opening || confirmed_ != nullptr || opens_sets())) return;
    task& one = *adding_[i];
    if (!plane_.complete_before(static_cast<creation*>(one.context)->id)) {
      ++i;
      continue;
    }
    adding_.erase(adding_.begin() + static_cast<std::ptrdiff_t>(i));
    if (device_) confirmed_ = &one;
    add_set(one);
  }
}

/// Makes the communicator of a process set with the other members. `own` is gone once this instance
/// is broken.
template <class Any>
progress::look_task<> negotiation<Any>::open_set(task& own) {
  auto making = comm::joint::create(
      slots_,
      [&](mpi::comm base) {
        if (broken_) return base.keep();  // others may use it
        try {
          set_made(own, std::move(base));
        } catch (...) {
          set_failed(own, std::current_exception());
        }
      },
      static_cast<creation*>(own.context)->members);
  co_await making;
}

/// Without memory to begin, the others wait for this rank in the creation, and would take it for
/// the next one's part: that can only end them all.
template <class Any>
void negotiation<Any>::set_not_made(task& one, const std::exception_ptr& why) {
  set_failed(one, why);
  try {
    std::rethrow_exception(why);
  } catch (const std::bad_alloc&) {
    break_down(why);
  } catch (...) {  // MPI's, which the others have as well
  }
}

template <class Any>
void negotiation<Any>::set_made(task& one, mpi::comm base) {
  auto& record = *static_cast<creation*>(one.context);
  if (record.number != 0) {
    make_view(one, record, std::move(base));  // which completes it
  } else {
    make_set(record, std::move(base));
    // Nobody here will have it: the others hear of that now.
    if (!one.linked || abandoned_) (**record.made).leave(protocol::departure::abandoned);
    complete(one);
  }
}

template <class Any>
void negotiation<Any>::set_failed(task& one, std::exception_ptr why) {
  one.fail(std::move(why));
  const std::uint32_t number = static_cast<creation*>(one.context)->number;
  if (number != 0) {
    unplace_set(number);
    leave(number, protocol::departure::abandoned);
  }
  complete(one);
  touch();  // for the next set
}

template <class Any>
void negotiation<Any>::make_set(creation& one, mpi::comm data) {
  mpi::comm exchange = data.dup();
  mpi::comm slot = data.dup();
  mpi::comm other_slot = data.dup();
  communicator control = communicator::adopt(control_, std::move(data), std::move(exchange));
  communicator slots = communicator::adopt(control_, std::move(slot), std::move(other_slot));
  coordinator_options options = options_;
  options.timeline.clear();
  options.frozen_plan.clear();
  auto made = std::make_shared<negotiation>(control, options, nullptr, nullptr, one);
  made->timeline_ = timeline_;
  asio::use_service<progress::kept_until_closed<negotiation>>(engine_.context()).add(made);
  source_.watch(*made);
  one.made = std::make_shared<instance_handle>(made->handle_of(made->whole()));
  made->control_ = std::move(control);
  made->slots_made(std::move(slots));
}

}  // namespace cohort::coordination
