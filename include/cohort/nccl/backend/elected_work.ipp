// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What becomes of an elected operation, but for its calls: bodies of
/// `nccl/backend/device_plane.hpp`.

#include <cohort/core/tool_range.hpp>
#include <cohort/nccl/backend/device_plane.hpp>
#include <cohort/nccl/queue/calls.ipp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

namespace cohort::nccl {

COHORT_INLINE elected_work::elected_work(std::shared_ptr<device_plane> plane,
                                         comm::device_call& what, comm::backend_completion done)
    : work(&deliver),
      plane_(std::move(plane)),
      memory_(plane_->memory_),
      what_(&what),
      done_(done),
      use_(what.use),
      graph_(std::static_pointer_cast<call_graph>(what.graph)) {
  verb = what.verb;
  ends = what.ends;
  hooks = this;
  one.what = op_kind::all_reduce;  // of nothing, until there are calls
  everybody = what.kind != op_kind::message;
}

COHORT_INLINE void elected_work::deliver(progress::operation* base, action what) {
  auto* const self = static_cast<elected_work*>(base);
  const auto plane = self->plane_;
  const bool wanted = self->let_go() && what != action::destroy;
  if (wanted) self->done_(self->error());
  delete self;
}

COHORT_INLINE bool elected_work::let_go() {
  const auto lock = plane_->source_->lock();
  plane_->forget(*this);
  if (turn_) block_->end(*turn_);
  forget_times(static_cast<bool>(error()));
  if (use_ == comm::device_use::capture) graph_->abandon();
  return what_ != nullptr;
}

COHORT_INLINE bool elected_work::end_in_lap() {
  const auto plane = plane_;
  if (stage_ == stage::first_part && !error()) {
    stage_ = stage::between_parts;
    plane->extras_.host->go_between(*this);
    return true;
  }
  const comm::backend_completion done = done_;
  const std::error_code why = error();
  const bool wanted = let_go();
  delete this;
  if (wanted) done.in_look(why);
  return true;
}

COHORT_INLINE void elected_work::lay_out() try {
  for (const auto& one_mark : what_->marks) {
    auto& mark = static_cast<submission_mark&>(*one_mark);
    for (buffer_use& use : mark.uses) uses.push_back(std::move(use));
    for (device::event& event : mark.after) after.push_back(std::move(event));
    mark.uses.clear();
    mark.after.clear();
  }
  for (const comm::tensor& each : tensors()) bytes += each.bytes();
  if (use_ != comm::device_use::replay && (by_host_ || is_fusible(what_->kind))) lay_out_packs();
  if (use_ != comm::device_use::capture) start_times();
} catch (const std::system_error& failed) {
  fail(failed.code());
} catch (const std::bad_alloc&) {
  fail(std::make_error_code(std::errc::not_enough_memory));
}

COHORT_INLINE void elected_work::lay_out_packs() {
  const bool whole = stage_ == stage::whole;
  runs_.lay_out(*what_, {.rank = comm->rank,
                         .ranks = comm->size,
                         .whole = whole,
                         .by_host = by_host_,
                         .pack_below = plane_->options_.pack_below});
  if (!whole) {
    kept_uses_ = std::exchange(uses, {});
    wanted_ = std::exchange(ends, until::complete);
  }
  if (runs_.bytes() == 0 || use_ == comm::device_use::capture) return;
  std::tie(block_, turn_) = memory_.next_block();
}

COHORT_INLINE std::byte* elected_work::buffer() const {
  if (use_ == comm::device_use::capture) return graph_->memory.data();
  return block_ != nullptr ? block_->memory.data() : nullptr;
}

COHORT_INLINE const device::stream& elected_work::packing() {
  if (use_ == comm::device_use::capture) return graph_->stream;
  const device::stream& on = *memory_.packing;
  if (!std::exchange(packs_, true)) {
    for (const device::event& mark : after) on.wait(mark);
    if (timed_ && !turn_) timed_->begin(comm::device_stage::pack, on, bytes);
  }
  return on;
}

COHORT_INLINE bool elected_work::pack() {
  if (what_ == nullptr || error()) {
    throw cohort::error(errc::aborted, "the operation was given up");
  }
  if (prepared_ || use_ != comm::device_use::run) return true;
  if (turn_ && block_->over != *turn_) return false;
  const device::scoped_device here(plane_->device_);
  more.clear();
  elected_calls calls(*this);
  if (stage_ == stage::second_part) {
    calls.make();
    return prepared_ = true;
  }
  packs_ = false;
  memory_.moves.clear();
  if (turn_) {
    const device::stream& on = packing();
    if (block_->used) on.wait(*block_->used);
    if (timed_) timed_->begin(comm::device_stage::pack, on, runs_.bytes());
    if (block_->memory.size() < runs_.bytes()) {
      block_->memory = device::vector<std::byte>(runs_.bytes(), on);
    }
    uses.push_back({"pack", nullptr, 0, plane_->device_, {}, block_->memory.lease()});
    bring_all();
  }
  calls.make();
  if (!memory_.moves.empty()) {
    const tools::range copying(tools::category::pack, tools::literal("pack"), runs_.bytes());
    memory_.run_moves(packing(), memory_.before, nullptr);
  }
  if (packs_ && timed_) timed_->end(comm::device_stage::pack, packing());
  if (packs_) ready_ = packing().record();
  return prepared_ = true;
}

/// Fills the buffer for packs.
COHORT_INLINE void elected_work::bring_all() {
  if (!brings_data(what_->kind, comm->rank == what_->root)) return;
  runs_.for_each_packed(
      tensors(), buffer(),
      [&](const elected_runs::run& each, const comm::tensor& tensor, std::byte* at) {
        memory_.moves.bring(tensor, each.how, at, what_->reduction);
      });
}

/// Empties it, and finishes what is not packed.
COHORT_INLINE void elected_work::take_all(const device::stream& on) {
  pack_moves& moves = memory_.moves;
  moves.clear();
  const bool writes = what_->kind != op_kind::broadcast || comm->rank != what_->root;
  if (runs_.bytes() != 0 && writes) {
    runs_.for_each_packed(
        tensors(), buffer(),
        [&](const elected_runs::run& each, const comm::tensor& tensor, const std::byte* at) {
          const auto [begin, count] = result_in(tensor);
          moves.take(tensor, each.how, at + begin * tensor.size(), count);
        });
  }
  for (const loose_result& each : finals_)
    moves.take(*each.tensor, each.how, each.from, each.count);
  if (moves.empty() && brought_.empty()) return;
  const tools::range copying(tools::category::unpack, tools::literal("unpack"), runs_.bytes());
  if (timed_) timed_->begin(comm::device_stage::unpack, on, runs_.bytes());
  const bool captures = use_ == comm::device_use::capture;
  memory_.run_moves(on, memory_.after, captures ? graph_.get() : nullptr);
  device::copy_batch(on, brought_);
  if (timed_) timed_->end(comm::device_stage::unpack, on);
}

/// Which elements of a packed tensor are this rank's result.
COHORT_INLINE rank_part elected_work::result_in(const comm::tensor& tensor) const {
  if (what_->kind != op_kind::reduce_scatter) return {0, tensor.count};
  return part_of_rank(tensor.count, comm->rank, comm->size);
}

/// MPI has done its part, or not: `why`.
COHORT_INLINE void elected_work::begin_second_part(std::error_code why) {
  stage_ = stage::second_part;
  if (why) fail(why);
  prepared_ = false;
  ready_.reset();
  if (!why) start_times();
  ends = wanted_;
  uses = std::move(kept_uses_);
  if (block_ != nullptr) {
    uses.push_back({"pack", nullptr, 0, plane_->device_, {}, block_->memory.lease()});
  }
}

/// All that the operation does goes to the stream of the graph, and NCCL's calls follow there.
COHORT_INLINE void elected_work::begin_capture(const device::stream& domain) {
  const device::scoped_device here(plane_->device_);
  const device::stream& on = graph_->stream;
  for (const buffer_use& use : uses) {
    if (use.lease) graph_->leases.push_back(use.lease);
  }
  if (runs_.bytes() != 0) graph_->memory = device::vector<std::byte>(runs_.bytes(), on);
  domain.wait(on);  // the memory is there before what is launched later
  std::erase_if(comm->graphs, [](const auto& each) { return each.expired(); });
  comm->graphs.push_back(graph_);
  graph_->staging = memory_.of_graphs;
  graph_->begin();
  more.clear();
  memory_.moves.clear();
  bring_all();
  elected_calls(*this).make();
  memory_.run_moves(on, memory_.before, graph_.get());
  if (std::none_of(more.begin(), more.end(), detail::launches)) graph_->abandon();
}

COHORT_INLINE void elected_work::prepare_replay() {
  // The graph itself may end before its communicator's operations do.
  uses.push_back({"graph", nullptr, 0, plane_->device_, {}, graph_});
  uses.push_back({"memory of the graph", nullptr, 0, plane_->device_, {}, graph_->used()});
  if (graph_->native() == nullptr) return;  // of no elements
  one.graph = graph_->native();
}

COHORT_INLINE cudaStream_t elected_work::calls_on(const device::stream& domain) const {
  return use_ == comm::device_use::capture ? graph_->stream.get() : domain.get();
}

COHORT_INLINE void elected_work::prepare(const device::stream& domain) {
  if (!pack()) throw cohort::error(errc::stalled, "the buffer for packs is in use");
  if (use_ == comm::device_use::capture) begin_capture(domain);
  if (use_ == comm::device_use::replay) prepare_replay();
  if (ready_) domain.wait(*ready_);
  if (timed_) {
    for (const device::event& mark : after) domain.wait(mark);  // it has not begun before
    after.clear();
    timed_->begin(comm::device_stage::reduce, domain, bytes);
  }
  std::erase(plane_->queued_, this);
}

COHORT_INLINE std::optional<device::event> elected_work::give_up(std::vector<buffer_use>& used) {
  std::erase(plane_->queued_, this);  // what it has not packed is not packed any more
  forget_times(true);
  for (std::vector<buffer_use>* const from : {&uses, &kept_uses_}) {
    used.insert(used.end(), std::make_move_iterator(from->begin()),
                std::make_move_iterator(from->end()));
    from->clear();
  }
  if (!packs_) return std::nullopt;
  try {
    if (!ready_) ready_ = packing().record();  // packing has failed half-way
    detail::let_free_behind(used, *ready_);
    return std::move(ready_);
  } catch (const std::system_error&) {
    return std::nullopt;  // the device has gone
  }
}

COHORT_INLINE void elected_work::start_times() noexcept {
  if (plane_->extras_.times != nullptr) timed_ = plane_->extras_.times->start(*what_);
}

/// Those that are under way, and if it has `failed` those that have been put.
COHORT_INLINE void elected_work::forget_times(bool failed) noexcept {
  const std::uint64_t number = std::exchange(timed_number_, 0);
  if (!timed_ && (!failed || number == 0)) return;
  plane_->extras_.times->forget(std::move(timed_), failed ? number : 0);
}

/// What has been timed is all recorded then.
struct elected_work::timed_until_here {
  explicit timed_until_here(elected_work& of) noexcept : op(of) {}
  timed_until_here(const timed_until_here&) = delete;
  ~timed_until_here() {
    if (op.timed_) op.timed_number_ = op.plane_->extras_.times->put(std::move(op.timed_));
  }
  elected_work& op;
};

COHORT_INLINE device::event elected_work::conclude(const device::stream& domain) {
  device_plane& plane = *plane_;
  const device::stream& out = *memory_.unpacking;
  const timed_until_here timed(*this);
  if (timed_) timed_->end(comm::device_stage::reduce, domain);
  device::event launched = domain.record();
  if (use_ == comm::device_use::replay) {
    graph_->stream.wait(launched);  // and with it the end of the graph's memory
    plane.pack_ahead();
    return launched;
  }
  if (use_ == comm::device_use::capture) {
    if (what_ != nullptr) {
      take_all(graph_->stream);
      graph_->finish();
    }
    plane.pack_ahead();
    return launched;
  }
  if (what_ == nullptr && turn_) block_->used = domain.record();
  if (stage_ == stage::first_part || what_ == nullptr) return launched;
  if (finals_.empty() && brought_.empty() && !turn_) {
    plane.pack_ahead();
    return launched;
  }
  out.wait(launched);
  take_all(out);
  if (turn_) {
    block_->used = out.record();
    block_->end(*std::exchange(turn_, std::nullopt));
  }
  device::event over = out.record();
  plane.pack_ahead();
  return over;
}

}  // namespace cohort::nccl
