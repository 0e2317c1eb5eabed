// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// One elected operation on a device: its packs, its calls of NCCL, and what comes after them.

#include <cohort/nccl/backend/device_plane.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>

namespace cohort::nccl {

namespace detail {

using comm::device_reduction;

/// As an operand of a reduction, or nothing.
inline std::optional<element> reduced_element(const comm::device_tensor& of) {
  if (!of.named) return std::nullopt;
  switch (of.element) {
    case element_type::int8:
      return element{ncclInt8};
    case element_type::uint8:
      return element{ncclUint8};
    case element_type::int32:
      return element{ncclInt32};
    case element_type::uint32:
      return element{ncclUint32};
    case element_type::int64:
      return element{ncclInt64};
    case element_type::uint64:
      return element{ncclUint64};
    case element_type::float16:
      return element{ncclFloat16};
    case element_type::bfloat16:
      return element{ncclBfloat16};
    case element_type::float32:
      return element{ncclFloat32};
    case element_type::float64:
      return element{ncclFloat64};
    case element_type::complex64:
      return element{ncclFloat32, 2};
    case element_type::complex128:
      return element{ncclFloat64, 2};
    default:
      return std::nullopt;
  }
}

[[nodiscard]] inline bool is_real(ncclDataType_t type) noexcept {
  return type == ncclFloat16 || type == ncclBfloat16 || type == ncclFloat32 || type == ncclFloat64;
}

/// A sum of contributions times `factor`.
inline operator_value scaled_sum(ncclDataType_t type, double factor) {
  operator_value made;
  made.is_scaled = true;
  const auto put = [&](auto value) { std::memcpy(made.factor.data(), &value, sizeof value); };
  if (type == ncclFloat16) {
    put(f16(static_cast<float>(factor)));
  } else if (type == ncclBfloat16) {
    put(bf16(static_cast<float>(factor)));
  } else if (type == ncclFloat32) {
    put(static_cast<float>(factor));
  } else {
    put(factor);
  }
  return made;
}

/// An average is summed.
[[nodiscard]] inline ncclRedOp_t plain_operation(device_reduction reduction) noexcept {
  switch (reduction) {
    case device_reduction::sum:
    case device_reduction::average:
      return ncclSum;
    case device_reduction::product:
      return ncclProd;
    case device_reduction::min:
      return ncclMin;
    default:  // max, or what NCCL only moves
      return ncclMax;
  }
}

/// Depends on what is equal on all ranks only.
inline treatment treatment_of(const comm::device_tensor& of, device_reduction reduction,
                              int ranks) {
  treatment how;
  how.as = *reduced_element(of);
  if (of.rounded) {
    how.op.op = plain_operation(reduction);
    how.scale_before = of.prescale;
    how.scale_after = of.postscale;
    if (reduction == device_reduction::average) how.divide_after = of.divisor;
    return how;
  }
  const bool by_all = of.all_bring && of.divisor == ranks;
  // NCCL multiplies in the type of the elements: in 16 bits a factor may be 0 or infinite.
  const double least = how.as.type == ncclFloat16 ? 6.2e-5 : 1.2e-38;
  const double most = how.as.type == ncclFloat16 ? 6.5e4 : 3.3e38;
  const bool is_small_type = of.size / how.as.width < sizeof(double);
  const auto fits = [&](double by) {
    return !is_small_type || by == 0 || (std::abs(by) >= least && std::abs(by) <= most);
  };
  // A factor behind the sum comes before it only where no partial sum grows: it could overflow.
  const auto folds = [&](double by) { return fits(by) && std::abs(by) <= std::abs(of.prescale); };
  const auto divisor = static_cast<double>(of.divisor);
  const double factor = of.prescale * of.postscale;
  const auto scale_apart = [&] {
    if (is_real(how.as.type) && of.prescale != 1 && fits(of.prescale)) {
      how.op = scaled_sum(how.as.type, of.prescale);
    } else {
      how.scale_before = of.prescale;
    }
    how.scale_after = of.postscale;
  };
  switch (reduction) {
    case device_reduction::sum:
      if (!folds(factor)) {
        scale_apart();
      } else if (factor != 1) {
        how.op = scaled_sum(how.as.type, factor);
      }
      break;
    case device_reduction::average:
      if (by_all && factor == 1 && folds(factor / divisor)) {
        how.op.op = ncclAvg;
      } else if (is_real(how.as.type) && folds(factor / divisor)) {
        how.op = scaled_sum(how.as.type, factor / divisor);
      } else {
        scale_apart();
        how.divide_after = of.divisor;
      }
      break;
    default:
      how.op.op = plain_operation(reduction);
      break;
  }
  if (reduction != device_reduction::sum && reduction != device_reduction::average) {
    how.scale_before = of.prescale;
    how.scale_after = of.postscale;
  }
  return how;
}

/// Where MPI reduces.
[[nodiscard]] inline treatment on_the_host(const comm::device_tensor& of,
                                           device_reduction reduction) noexcept;

[[nodiscard]] inline std::size_t bytes_of(const comm::device_tensor& one) noexcept {
  return one.count * one.size;
}
/// Of `count` elements, how many a rank gets: the first ranks one more.
[[nodiscard]] inline std::size_t part_for(std::size_t count, int rank, int ranks) noexcept {
  const auto n = static_cast<std::size_t>(ranks);
  return count / n + (static_cast<std::size_t>(rank) < count % n ? 1 : 0);
}

}  // namespace detail

COHORT_INLINE elected_work::elected_work(std::shared_ptr<device_plane> plane,
                                         comm::device_call& what, comm::backend_completion done)
    : work(&deliver),
      plane_(std::move(plane)),
      what_(&what),
      done_(done),
      use_(what.use),
      graph_(what.graph ? static_cast<captured_graph&>(*what.graph).calls : nullptr) {
  verb = what.verb;
  ends = what.ends;
  steps = this;
  one.what = call::kind::all_reduce;  // of nothing, until there are calls
  everybody = what.kind != comm::collective::message;
}

COHORT_INLINE void elected_work::deliver(progress::operation* base, action what) {
  auto* const self = static_cast<elected_work*>(base);
  const auto plane = self->plane_;
  const bool wanted = self->let_go() && what != action::destroy;
  if (wanted) self->done_(self->error());
  delete self;
}

COHORT_INLINE bool elected_work::let_go() {
  device_plane& plane = *plane_;
  return plane.source_->exclusively([&] {
    std::erase(plane.live_, this);
    std::erase_if(plane.held_, [this](const auto& each) { return each.op == this; });
    std::erase(plane.queued_, this);
    if (has_turn_) plane.blocks_[block_].end(turn_);
    plane.times_.forget(std::move(timed_), error() ? timed_number_ : 0);
    if (plane.between_ == this) plane.between_ = nullptr;
    if (use_ == comm::device_use::capture) graph_->abandon();
    return what_ != nullptr;
  });
}

COHORT_INLINE bool elected_work::end_in_lap() {
  const auto plane = plane_;
  if (stage_ == stage::within_node && !error()) {
    plane->go_between(*this);
    return true;
  }
  const comm::backend_completion done = done_;
  const std::error_code why = error();
  const bool wanted = let_go();
  delete this;
  if (wanted) done.in_look(why);
  return true;
}

// ---- what travels together -------------------------------------------------------------------

COHORT_INLINE void elected_work::lay_out() {
  for (const auto& one_mark : what_->marks) {
    auto& mark = static_cast<submission_mark&>(*one_mark);
    for (buffer_use& use : mark.uses) uses.push_back(std::move(use));
    for (device::event& event : mark.after) after.push_back(std::move(event));
    mark.uses.clear();
    mark.after.clear();
  }
  const bool reduces = what_->kind == comm::collective::all_reduce;
  const bool fuses = reduces || by_host_ || what_->kind == comm::collective::broadcast;
  for (const comm::device_tensor& each : tensors()) bytes += detail::bytes_of(each);
  if (!fuses || use_ == comm::device_use::replay) return;
  const bool whole = stage_ == stage::whole;
  for (std::size_t i = 0; i < tensors().size();) {
    const treatment how = treatment_of(tensors()[i]);
    std::size_t end = i + 1;
    while (end < tensors().size() && treatment_of(tensors()[end]) == how) ++end;
    lay_out_alike(i, end - i, how);
    i = end;
  }
  for (run& each : runs_) {
    if (!whole) each.direct.reset();
    // What is captured takes no other memory than that of the pack.
    const bool changes = each.how.scale_before != 1 || tensors()[each.first].rounded;
    const bool fills = !whole || (changes && use_ == comm::device_use::capture);
    each.packed = !each.direct && (each.tensors > 1 || fills);
    if (!each.packed) continue;
    each.begin = packed_bytes_;
    packed_bytes_ += each.bytes;
  }
  if (!whole) {
    kept_uses_ = std::move(uses);
    uses.clear();
    wanted_ = std::exchange(ends, until::complete);
  }
  if (packed_bytes_ == 0 || use_ == comm::device_use::capture) return;
  block_ = static_cast<std::size_t>(plane_->packs_++ % plane_->blocks_.size());
  turn_ = plane_->blocks_[block_].given++;
  has_turn_ = true;
}

[[nodiscard]] inline treatment elected_work::treatment_of(const comm::device_tensor& of) const {
  if (by_host_) return detail::on_the_host(of, what_->reduction);
  if (what_->kind != comm::collective::all_reduce) return {};
  const int ranks = stage_ == stage::whole ? comm->size : 0;
  return detail::treatment_of(of, what_->reduction, ranks);
}

/// Tensors that one call could reduce: all of them in an arena, or small ones packed.
COHORT_INLINE void elected_work::lay_out_alike(std::size_t first, std::size_t count,
                                               const treatment& how) {
  const bool whole = stage_ == stage::whole;
  if (whole) {
    if (const auto all = range_of(first, count)) {
      runs_.push_back({first, count, 0, 0, how, false, all});
      return;
    }
  }
  const std::size_t before = runs_.size();
  for (std::size_t i = first; i < first + count; ++i) {
    const std::size_t size = detail::bytes_of(tensors()[i]);
    const bool small = size < plane_->options_.pack_below || !whole;
    if (small && runs_.size() > before && runs_.back().packed) {
      ++runs_.back().tensors;
      runs_.back().bytes += detail::aligned(size);
    } else {
      runs_.push_back({i, 1, 0, detail::aligned(size), how, small, {}});
    }
  }
  if (!whole) return;
  for (std::size_t i = before; i < runs_.size(); ++i) {
    runs_[i].direct = range_of(runs_[i].first, runs_[i].tensors);
  }
}

COHORT_INLINE std::byte* elected_work::pack_memory() const {
  return use_ == comm::device_use::capture ? graph_->memory.data()
                                           : plane_->blocks_[block_].memory.data();
}

/// visit(run, tensor, where it lies in the buffer)
template <class Visit>
void elected_work::for_each_packed(Visit visit) const {
  std::byte* const base = pack_memory();
  for (const run& each : runs_) {
    if (!each.packed) continue;
    std::size_t at = each.begin;
    for (std::size_t i = 0; i < each.tensors; ++i) {
      const comm::device_tensor& one_tensor = tensors()[each.first + i];
      visit(each, one_tensor, base + at);
      at += detail::aligned(detail::bytes_of(one_tensor));
    }
  }
}

COHORT_INLINE const device::stream& elected_work::packing() {
  if (use_ == comm::device_use::capture) return graph_->stream;
  const device::stream& on = *plane_->packing_;
  if (!std::exchange(packs_, true)) {
    for (const device::event& mark : after) on.wait(mark);
    if (timed_ && !has_turn_) timed_->begin(comm::device_step::pack, on, bytes);
  }
  return on;
}

/// Memory for what this rank does not bring, or does not want.
COHORT_INLINE std::byte* elected_work::take_room(std::size_t bytes_wanted) {
  if (bytes_wanted == 0) return nullptr;
  device::vector<std::byte> room(bytes_wanted, packing());
  uses.push_back({"room", nullptr, 0, plane_->device_, {}, room.lease()});
  return room.data();
}

/// Where NCCL reads.
COHORT_INLINE const void* elected_work::input_of(const comm::device_tensor& tensor,
                                                 const treatment& how) {
  const std::size_t size = detail::bytes_of(tensor);
  if (tensor.in != nullptr && how.scale_before == 1 && tensor.cast == nullptr) {
    return readable(tensor.in, size);
  }
  std::byte* const room = take_room(size);
  plane_->moves_.bring(tensor, how, room, what_->reduction);
  return room;
}

// ---- before and after ------------------------------------------------------------------------

COHORT_INLINE bool elected_work::pack() {
  if (what_ == nullptr || error()) {
    throw cohort::error(errc::aborted, "the operation was given up");
  }
  if (prepared_ || use_ != comm::device_use::run) return true;
  device_plane& plane = *plane_;
  device_plane::block& block = plane.blocks_[block_];
  if (has_turn_ && block.over != turn_) return false;
  const device::scoped_device here(plane.device_);
  more.clear();
  if (stage_ == stage::back) {
    if (by_host_) {
      make_calls();
    } else {
      add(call::kind::broadcast, element{ncclUint8}, block.memory.data(), block.memory.data(),
          packed_bytes_, 1);
    }
    return prepared_ = true;
  }
  packs_ = false;
  plane.moves_.clear();
  if (has_turn_) {
    const device::stream& on = packing();
    if (block.used) on.wait(*block.used);
    if (timed_) timed_->begin(comm::device_step::pack, on, packed_bytes_);
    if (block.memory.size() < packed_bytes_) {
      block.memory = device::vector<std::byte>(packed_bytes_, on);
    }
    uses.push_back({"pack", nullptr, 0, plane.device_, {}, block.memory.lease()});
    bring_all();
  }
  make_calls();
  if (!plane.moves_.empty()) {
    const tools::range copying(tools::category::pack, tools::literal("pack"), packed_bytes_);
    plane.run_moves(packing(), plane.pack_staging_, nullptr);
  }
  if (packs_ && timed_) timed_->end(comm::device_step::pack, packing());
  if (packs_) ready_ = packing().record();
  prepared_ = true;
  return true;
}

/// Fills the buffer for packs.
COHORT_INLINE void elected_work::bring_all() {
  const bool reads = by_host_ || what_->kind == comm::collective::all_reduce;
  if (!reads && comm->rank != what_->root) return;
  for_each_packed([&](const run& each, const comm::device_tensor& tensor, std::byte* at) {
    plane_->moves_.bring(tensor, each.how, at, what_->reduction);
  });
}

/// Empties it, and finishes what is not packed.
COHORT_INLINE void elected_work::take_all(const device::stream& on) {
  pack_moves& moves = plane_->moves_;
  moves.clear();
  if (packed_bytes_ != 0 &&
      (by_host_ || what_->kind == comm::collective::all_reduce || comm->rank != what_->root)) {
    for_each_packed([&](const run& each, const comm::device_tensor& tensor, const std::byte* at) {
      const auto [offset, count] = result_in(tensor);
      moves.take(tensor, each.how, at + offset * tensor.size, count);
    });
  }
  for (const final_step& each : finals_) moves.take(*each.tensor, each.how, each.from, each.count);
  if (moves.empty() && brought_.empty()) return;
  const tools::range copying(tools::category::unpack, tools::literal("unpack"), packed_bytes_);
  if (timed_) timed_->begin(comm::device_step::unpack, on, packed_bytes_);
  const bool captures = use_ == comm::device_use::capture;
  plane_->run_moves(on, plane_->unpack_staging_, captures ? graph_.get() : nullptr);
  device::copy_batch(on, brought_);
  if (timed_) timed_->end(comm::device_step::unpack, on);
}

/// Where in the room of a tensor this rank's result begins, and its elements.
COHORT_INLINE std::pair<std::size_t, std::size_t> elected_work::result_in(
    const comm::device_tensor& tensor) const {
  if (what_->kind != comm::collective::reduce_scatter) return {0, tensor.count};
  std::size_t before = 0;
  for (int rank = 0; rank < comm->rank; ++rank) {
    before += detail::part_for(tensor.count, rank, comm->size);
  }
  return {before, detail::part_for(tensor.count, comm->rank, comm->size)};
}

/// All that the operation does goes to the stream of the graph, and NCCL's calls follow there.
COHORT_INLINE void elected_work::begin_capture(const device::stream& domain) {
  const device::scoped_device here(plane_->device_);
  const device::stream& on = graph_->stream;
  for (const buffer_use& use : uses) {
    if (use.lease) graph_->leases.push_back(use.lease);
  }
  if (packed_bytes_ != 0) graph_->memory = device::vector<std::byte>(packed_bytes_, on);
  domain.wait(on);  // the memory is there before what is launched later
  std::erase_if(comm->graphs, [](const auto& each) { return each.expired(); });
  comm->graphs.push_back(graph_);
  graph_->staging = plane_->graph_staging_;
  graph_->begin();
  more.clear();
  plane_->moves_.clear();
  bring_all();
  make_calls();
  plane_->run_moves(on, plane_->pack_staging_, graph_.get());
  if (std::none_of(more.begin(), more.end(), detail::launches)) graph_->abandon();
}

COHORT_INLINE void elected_work::prepare_replay() {
  // The graph itself may end before its communicator's operations do.
  uses.push_back({"graph", nullptr, 0, plane_->device_, {}, graph_});
  uses.push_back({"memory of the graph", nullptr, 0, plane_->device_, {}, graph_->used()});
  if (graph_->native() == nullptr) return;  // of no elements
  one.what = call::kind::graph;
  one.to = graph_->native();
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
    timed_->begin(comm::device_step::reduce, domain, bytes);
  }
  std::erase(plane_->queued_, this);
}

COHORT_INLINE std::optional<device::event> elected_work::give_up(std::vector<buffer_use>& used) {
  std::erase(plane_->queued_, this);  // what it has not packed is not packed any more
  plane_->times_.forget(std::move(timed_), std::exchange(timed_number_, 0));
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

/// What has been timed is all recorded then.
struct elected_work::timed_until_here {
  explicit timed_until_here(elected_work& of) noexcept : op(of) {}
  timed_until_here(const timed_until_here&) = delete;
  ~timed_until_here() {
    if (op.timed_) op.timed_number_ = op.plane_->times_.put(std::move(op.timed_));
  }
  elected_work& op;
};

COHORT_INLINE device::event elected_work::conclude(const device::stream& domain) {
  device_plane& plane = *plane_;
  const device::stream& out = *plane.unpacking_;
  const timed_until_here timed(*this);
  if (timed_) timed_->end(comm::device_step::reduce, domain);
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
  if (what_ == nullptr && has_turn_) plane.blocks_[block_].used = domain.record();
  if (stage_ == stage::within_node || what_ == nullptr) return launched;
  if (finals_.empty() && brought_.empty() && !has_turn_) {
    plane.pack_ahead();
    return launched;
  }
  out.wait(launched);
  take_all(out);
  if (has_turn_) {
    plane.blocks_[block_].used = out.record();
    plane.blocks_[block_].end(turn_);
    has_turn_ = false;
  }
  device::event over = out.record();
  plane.pack_ahead();
  return over;
}

// ---- calls -----------------------------------------------------------------------------------

COHORT_INLINE call& elected_work::add(call::kind kind, const element& as, const void* from,
                                      void* to, std::size_t count, std::size_t size, int root) {
  call& made = more.emplace_back();
  made.what = kind;
  made.from = from;
  made.to = to;
  made.count = count * as.width;
  made.type = as.type;
  made.width = size / as.width;
  made.root = root;
  return made;
}

COHORT_INLINE void elected_work::make_calls() {
  finals_.clear();
  brought_.clear();
  if (by_host_) return call_host();
  switch (what_->kind) {
    case comm::collective::all_reduce:
    case comm::collective::broadcast:
      return call_fused();
    case comm::collective::reduce:
      return call_reduce();
    case comm::collective::reduce_scatter:
      return call_reduce_scatter();
    case comm::collective::all_gather:
      return call_all_gather();
    case comm::collective::all_to_all:
      return call_all_to_all();
    case comm::collective::gather:
    case comm::collective::scatter:
      return call_rooted();
    case comm::collective::message:
      return call_message();
    case comm::collective::barrier:
      one.what = call::kind::barrier;
      return;
    case comm::collective::arena:  // is no work of the queue
      return;
  }
}

/// Notes what is to be done to a result that is not packed.
COHORT_INLINE void elected_work::finish(const comm::device_tensor& tensor, const treatment& how,
                                        const void* from, std::size_t count) {
  if (tensor.out == nullptr || (from == tensor.out && !how.finishes())) return;
  finals_.push_back({&tensor, how, from, count});
}

/// Where NCCL writes `count` elements of a result, which `finish` takes from there.
COHORT_INLINE void* elected_work::room_for(const comm::device_tensor& tensor, std::size_t count) {
  const bool own =
      tensor.cast != nullptr || tensor.out == nullptr || plane_->is_registered(tensor.out);
  return own ? take_room(count * tensor.size) : tensor.out;
}

COHORT_INLINE void elected_work::call_fused() {
  const bool reduces = what_->kind == comm::collective::all_reduce;
  auto kind = reduces ? call::kind::all_reduce : call::kind::broadcast;
  if (stage_ == stage::within_node) kind = call::kind::reduce;
  const int root = stage_ == stage::within_node ? 0 : what_->root;
  const bool reads = reduces || comm->rank == what_->root;
  for (const run& each : runs_) {
    const comm::device_tensor& first = tensors()[each.first];
    const std::size_t unit = reduces ? first.size : 1;
    if (each.direct) {
      std::byte* const at = each.direct->begin;
      add(kind, each.how.as, at, at, each.direct->bytes / unit, unit, root).op = each.how.op;
      for (const comm::device_tensor& one_tensor : tensors().subspan(each.first, each.tensors)) {
        finish(one_tensor, each.how, one_tensor.out, one_tensor.count);
      }
    } else if (each.packed) {
      std::byte* const at = pack_memory() + each.begin;
      add(kind, each.how.as, at, at, each.bytes / unit, unit, root).op = each.how.op;
    } else {
      const std::size_t size = detail::bytes_of(first);
      void* const to = room_for(first, first.count);
      const void* const from = reads ? input_of(first, each.how) : to;
      add(kind, each.how.as, from, to, size / unit, unit, what_->root).op = each.how.op;
      finish(first, each.how, to, first.count);
    }
  }
}

/// None of NCCL's. The finals are those of the second part.
COHORT_INLINE void elected_work::call_host() {
  if (packed_bytes_ != 0) more.emplace_back().what = call::kind::host;
}

COHORT_INLINE void elected_work::call_reduce() {
  const bool is_root = comm->rank == what_->root;
  for (const comm::device_tensor& tensor : tensors()) {
    const treatment how = detail::treatment_of(tensor, what_->reduction, comm->size);
    const void* const from = input_of(tensor, how);
    void* to = nullptr;
    if (is_root) {
      to = room_for(tensor, tensor.count);
      finish(tensor, how, to, tensor.count);
    }
    add(call::kind::reduce, how.as, from, to, tensor.count, tensor.size, what_->root).op = how.op;
  }
}

// Parts of two sizes are reduced one by one.
COHORT_INLINE void elected_work::call_reduce_scatter() {
  for (const comm::device_tensor& tensor : tensors()) {
    const treatment how = detail::treatment_of(tensor, what_->reduction, comm->size);
    const std::size_t mine = detail::part_for(tensor.count, comm->rank, comm->size);
    const auto* from = static_cast<const std::byte*>(input_of(tensor, how));
    void* const to = room_for(tensor, mine);
    finish(tensor, how, to, mine);
    if (tensor.count % static_cast<std::size_t>(comm->size) == 0) {
      add(call::kind::reduce_scatter, how.as, from, to, mine, tensor.size).op = how.op;
      continue;
    }
    for (int rank = 0; rank < comm->size; ++rank) {
      const std::size_t part = detail::part_for(tensor.count, rank, comm->size);
      add(call::kind::reduce, how.as, from, rank == comm->rank ? to : nullptr, part, tensor.size,
          rank)
          .op = how.op;
      from += part * tensor.size;
    }
  }
}

COHORT_INLINE void elected_work::call_all_gather() {
  const element bytes_as{ncclUint8};
  const std::size_t members = tensors().size();
  for (std::size_t i = 0; i < members; ++i) {
    const comm::device_tensor& tensor = tensors()[i];
    std::vector<std::size_t> come;
    for (std::size_t at = i; at < what_->received.size(); at += members) {
      come.push_back(what_->received[at]);
    }
    const std::size_t all = std::accumulate(come.begin(), come.end(), std::size_t{0});
    auto* to = static_cast<std::byte*>(writable(tensor.out, all));
    const void* const mine = readable(tensor.in, come[static_cast<std::size_t>(comm->rank)]);
    if (std::adjacent_find(come.begin(), come.end(), std::not_equal_to<>()) == come.end()) {
      add(call::kind::all_gather, bytes_as, mine, to, come.front(), 1);
      continue;
    }
    for (int rank = 0; rank < comm->size; ++rank) {
      const std::size_t part = come[static_cast<std::size_t>(rank)];
      const void* const from = rank == comm->rank ? mine : to;
      add(call::kind::broadcast, bytes_as, from, to, part, 1, rank);
      to += part;
    }
  }
}

COHORT_INLINE void elected_work::call_all_to_all() {
  if (tensors().size() != 1) return call_blocks();
  const comm::device_tensor& tensor = tensors().front();
  std::size_t all = 0;
  for (const std::size_t each : what_->received) all += each;
  auto* to = static_cast<std::byte*>(writable(tensor.out, all));
  std::size_t own = 0;
  for (const std::size_t each : what_->sent) own += each;
  const auto* from = static_cast<const std::byte*>(readable(tensor.in, own));
  const element bytes_as{ncclUint8};
  for (int rank = 0; rank < comm->size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    const std::size_t sends = i < what_->sent.size() ? what_->sent[i] : 0;
    add(call::kind::send, bytes_as, from, nullptr, sends, 1, rank);
    add(call::kind::recv, bytes_as, nullptr, to, what_->received[i], 1, rank);
    if (sends != 0) from += sends;
    to += what_->received[i];
  }
}

/// Of each member of a bundle one block for each rank.
COHORT_INLINE void elected_work::call_blocks() {
  const auto ranks = static_cast<std::size_t>(comm->size);
  const element bytes_as{ncclUint8};
  for (const comm::device_tensor& tensor : tensors()) {
    const std::size_t whole = detail::bytes_of(tensor);
    const std::size_t block = whole / ranks;
    const auto* from = static_cast<const std::byte*>(readable(tensor.in, whole));
    auto* to = static_cast<std::byte*>(writable(tensor.out, whole));
    for (int rank = 0; block != 0 && rank < comm->size; ++rank) {
      add(call::kind::send, bytes_as, from, nullptr, block, 1, rank);
      add(call::kind::recv, bytes_as, nullptr, to, block, 1, rank);
      from += block;
      to += block;
    }
  }
}

COHORT_INLINE void elected_work::call_rooted() {
  const bool gathers = what_->kind == comm::collective::gather;
  const bool is_root = comm->rank == what_->root;
  const auto ranks = static_cast<std::size_t>(comm->size);
  const element bytes_as{ncclUint8};
  for (const comm::device_tensor& tensor : tensors()) {
    const std::size_t whole = detail::bytes_of(tensor);
    const std::size_t part = gathers ? whole : whole / ranks;
    const void* from = nullptr;
    void* to = nullptr;
    if (gathers || is_root) from = input_of(tensor, treatment());
    if (!gathers || is_root) {
      to = writable(tensor.out, gathers ? whole * ranks : part);
    }
    add(gathers ? call::kind::gather : call::kind::scatter, bytes_as, from, to, part, 1,
        what_->root);
  }
}

// One of a pair of ranks; the others do nothing here. An empty message launches nothing.
COHORT_INLINE void elected_work::call_message() {
  const comm::device_tensor& tensor = tensors().front();
  const std::size_t size = detail::bytes_of(tensor);
  const element bytes_as{ncclUint8};
  if (size == 0) return;
  if (tensor.in != nullptr) {
    add(call::kind::send, bytes_as, readable(tensor.in, size), nullptr, size, 1, what_->root);
  } else {
    void* const to = writable(tensor.out, size);
    add(call::kind::recv, bytes_as, nullptr, to, size, 1, what_->root);
  }
}

}  // namespace cohort::nccl
