// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/negotiation.hpp: a rank that gives up where nobody decides, and what
/// it leaves behind. [protocol W4]

#include <cohort/coordinator/negotiation.hpp>

#include <cohort/core/log.hpp>

#include <algorithm>
#include <cstring>

namespace cohort::coordination {

// Nobody decides, because a rank between here and the root is stopped or computes. Only time in
// which this rank looked for messages counts: after a long handler they may be there already.
// [protocol W4]
template <class Any>
void negotiation<Any>::watch_undecided(clock::time_point at) {
  const auto step = std::min<std::chrono::nanoseconds>(at - std::exchange(last_tick_, at),
                                                       std::chrono::milliseconds(100));
  if (node_.shape().is_root()) return;
  std::chrono::nanoseconds longest{0};
  for (task* each = first_; each != nullptr; each = each->after) {
    if (!each->withdrawn || each->started || is_between(*each)) continue;
    each->undecided += step;
    longest = std::max(longest, each->undecided);
  }
  if (longest > options_.decision_timeout / 2 && pinged_ + options_.decision_timeout < at) {
    pinged_ = at;
    edges_.front().asks = true;
    touch();
  }
  if (longest > options_.decision_timeout) give_up();
}

template <class Any>
void negotiation<Any>::give_up() {
  const int parent = node_.shape().parent();
  const std::string text =
      ": no decision within " +
      std::to_string(
          std::chrono::duration_cast<std::chrono::milliseconds>(options_.decision_timeout)
              .count()) +
      " ms; rank " + std::to_string(parent) +
      (answered_ >= pinged_
           ? ", this rank's parent, answers, so it is a rank beyond it that does not"
           : ", this rank's parent, does not answer");
  stall_facts facts;
  if (answered_ < pinged_) facts.silent.push_back(parent);
  // What is elected all the same needs this rank's data, and the buffers are the caller's.
  for (task* each = first_; each != nullptr;) {
    task* const next = each->after;
    if (!each->started) {
      std::string what = "join";
      if (each->name == protocol::none) {
        each->view->joining = nullptr;
      } else {
        what = std::string(each->verb()) + " '" + std::string(given_name(*each)) + "'";
        // A set between its steps is not confirmed: it ends everywhere when this rank has left.
        if (std::erase(adding_, each) == 0) {
          node_.replace_token(each->operation_ref,
                              reinterpret_cast<std::uint64_t>(stand_in_for(*each)));
        }
      }
      each->fail(std::make_exception_ptr(
          deadline_error(facts, "rank " + std::to_string(rank_) + ": " + what + text)));
      complete(*each);
    }
    each = next;
  }
  log::write(log::level::error,
             "rank " + std::to_string(rank_) + ": coordinator" + text + "; this rank leaves");
  whole().left = true;
  whole().leave_until = clock::now() + options_.leave_deadline;
  node_.give_up();
  touch();
}

/// Takes part in making a process set that nobody here waits for, and lets go of it.
class set_stand_in final : public task {
 public:
  explicit set_stand_in(const task& one)
      : task(&run), record_(*static_cast<creation*>(one.context)) {
    context = &record_;
    view = one.view;
    kind = one.kind;
    name = one.name;
    epoch = one.epoch;
    operation_ref = one.operation_ref;
  }

 private:
  static void run(operation* base, action) { delete static_cast<set_stand_in*>(base); }
  creation record_;
};

template <class Any>
task* negotiation<Any>::stand_in_for(const task& one) const {
  if (one.kind == op_kind::barrier && node_.name(one.name).listed) return new set_stand_in(one);
  auto copy = std::make_unique<neutral_task>(protocol::signature());
  copy->kind = one.kind;
  copy->space = one.space;
  copy->flags = one.flags;
  copy->code = one.code;
  copy->root = one.root;
  copy->peer = one.peer;
  copy->sends = one.sends;
  copy->prescale = one.prescale;
  copy->postscale = one.postscale;
  copy->first = one.first;
  copy->others = one.others;
  copy->sizes = one.sizes;
  copy->row_bytes = one.row_bytes;
  copy->told = one.told;
  copy->made = one.made;
  if (protocol::is_persistent(one.kind)) copy->context = one.context;  // the group stays
  copy->name = one.name;
  copy->epoch = one.epoch;
  copy->view = one.view;
  if (one.space != memory_space::host) {
    keep_for(*copy, one);
    return copy.release();
  }
  if (one.make_result != nullptr) copy->make_result = &neutral_task::own_result;
  // Inputs are copied, and what comes goes behind them.
  const bool is_root = one.root == one.view->rank();
  const bool reads = (one.kind != op_kind::scatter && one.kind != op_kind::message) || is_root;
  const std::size_t results =
      one.kind == op_kind::gather && is_root ? static_cast<std::size_t>(one.view->size()) : 1;
  const auto room_of = [](const tensor& what) {
    return what.kernels == nullptr ? std::size_t{0} : (what.place_of(what.bytes()) + 63) / 64 * 64;
  };
  std::size_t room = 64;
  for (std::size_t i = 0; i < one.tensors(); ++i) room += (1 + results) * room_of(one[i]);
  copy->inputs.resize(room);
  std::byte* at = copy->inputs.data();
  for (std::size_t i = 0; i < one.tensors(); ++i) {
    const tensor& from = one[i];
    tensor& to = i == 0 ? copy->first : copy->others[i - 1];
    if (from.kernels == nullptr) continue;
    if (reads && from.bytes() != 0) std::memcpy(at, from.in, from.place_of(from.bytes()));
    to.in = at;
    to.out = from.in == from.out ? at : at + room_of(from);
    at += (1 + results) * room_of(from);
  }
  return copy.release();
}

}  // namespace cohort::coordination
