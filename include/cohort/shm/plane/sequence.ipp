// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of shm/plane/sequence.hpp.

#include <cohort/core/copy.hpp>
#include <cohort/core/pack_layout.hpp>
#include <cohort/shm/plane/sequence.hpp>

#include <algorithm>
#include <string_view>
#include <system_error>

namespace cohort::shm::detail {

COHORT_INLINE sequence::sequence(std::span<std::byte> memory, std::size_t rank, std::size_t ranks,
                                 std::size_t chunk, std::size_t whole_up_to, bool is_chosen,
                                 std::unique_ptr<node_messages> between)
    : lines_(reinterpret_cast<progress_line*>(memory.data()), ranks),
      chunk_lines_(reinterpret_cast<chunk_line*>(memory.data() + ranks * sizeof(progress_line))),
      buffers_(reinterpret_cast<std::byte*>(chunk_lines_ + ranks * depth)),
      rank_(rank),
      ranks_(ranks),
      chunk_(chunk),
      whole_up_to_(std::min(whole_up_to, chunk)),
      is_chosen_(is_chosen),
      between_(std::move(between)),
      shares_(between_ ? between_->map().rails() : ranks),
      sources_(ranks),
      result_(whole_up_to_),
      scratch_(chunk) {}

/// Large blocks that MPI copies once, from one process to the other, and this twice, through its
/// buffers. The sizes are measured: docs/design/planes.md.
inline bool is_quicker_by_mpi(op_kind kind, std::size_t bytes, std::size_t ranks) noexcept {
  if (kind == op_kind::all_to_all) return bytes > 128 * 1024;
  return kind == op_kind::all_gather && ranks == 2 && bytes > 512 * 1024;
}

/// The same over several nodes, of what is not summed up: large blocks of all_to_all, and all that
/// is large where some node has one rank, which MPI sends from where they are; and small blocks of
/// each rank on many nodes, for each is waited for in turn here. The last is not measured, the
/// others are: hierarchical.md.
inline bool is_quicker_by_mpi(op_kind kind, std::size_t bytes, const node_map& map) noexcept {
  if (kind == op_kind::all_reduce || kind == op_kind::reduce || kind == op_kind::barrier)
    return false;
  const bool is_copied_more = kind == op_kind::all_to_all || map.rails() == 1;
  if (is_copied_more && bytes > 64 * 1024) return true;
  return kind != op_kind::broadcast && map.nodes() > 4 && bytes * map.nodes() <= 64 * 1024;
}

/// What is done over several nodes; the rest is MPI's there.
[[nodiscard]] inline bool goes_between(op_kind kind) noexcept {
  return kind != op_kind::gather && kind != op_kind::scatter;
}

COHORT_INLINE bool sequence::takes(const comm::collective_call& call) const noexcept {
  const std::size_t size = block_size(call.type);
  if (between_ && !goes_between(call.kind)) return false;
  if (is_chosen_) {
    const std::size_t bytes = call.count * size;
    const std::size_t ranks = between_ ? between_->map().ranks() : ranks_;  // equal on all of them
    if (is_quicker_by_mpi(call.kind, bytes, ranks)) return false;
    if (between_ && is_quicker_by_mpi(call.kind, bytes, between_->map())) return false;
  }
  if (size == 0) return false;
  // Divided in bytes where nothing is reduced.
  if (!is_reduction(call.kind)) return blocks(call.kind) <= chunk_;
  if ((is_chosen_ || between_) && !reducer(call.type, call.op).is_plain()) return false;
  return size * blocks(call.kind) <= chunk_;
}

/// Whether this rank does without buffers. Up to `laid_at_once` it does not: such calls can be
/// given up, and a copy of so few bytes costs nothing.
COHORT_INLINE bool sequence::goes_direct(const comm::collective_call& call,
                                         std::size_t bytes) const noexcept {
  return between_ && ranks_ == 1 && call.scattered == nullptr && bytes > laid_at_once &&
         (call.kind == op_kind::all_reduce || call.kind == op_kind::reduce ||
          call.kind == op_kind::broadcast);
}

COHORT_INLINE void sequence::push(const comm::collective_call& call, std::size_t size,
                                  const reducer& reduce, comm::backend_completion done) {
  if (first_ == calls_.size()) {
    calls_.clear();
    first_ = 0;
  } else if (first_ > 64 && first_ * 2 > calls_.size()) {
    calls_.erase(calls_.begin(), calls_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  auto root = static_cast<std::size_t>(call.root);
  if (between_) {
    const node_map& map = between_->map();
    root = map.node_of(root) == map.node() ? map.place_of(root) : SIZE_MAX;
  }
  pending_call one{call, done, size, reduce, call_mark(call, size), root, {}};
  one.is_direct = goes_direct(call, call.count * size);
  if (!is_reduction(call.kind)) {  // ranks may have different types for the same bytes
    one.what.count *= size;
    one.size = 1;
  }
  const bool is_first = !has_to_lay();
  calls_.push_back(std::move(one));
  if (is_first && call.count * size <= laid_at_once) lay();
}

COHORT_INLINE bool sequence::all_reached(counter which, std::uint64_t number,
                                         std::uint64_t& known) const noexcept {
  if (known >= number) return true;
  std::uint64_t least = UINT64_MAX;
  for (const progress_line& each : lines_) {
    least = std::min(least, (each.*which).load(std::memory_order_acquire));
    if (least < number) return false;
  }
  known = least;
  return true;
}

COHORT_INLINE bool sequence::all_laid() noexcept {
  std::uint64_t left = UINT64_MAX;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const chunk_line& each = line_of(rank, summed_);
    if (each.laid.load(std::memory_order_acquire) <= summed_) return false;
    left = std::min(left, each.left);
  }
  all_left_ = std::max(all_left_, left);
  return true;
}

COHORT_INLINE sequence::share sequence::share_of(std::size_t rank, const chunk_of& one,
                                                 std::size_t size) const noexcept {
  // Whole cache lines, so that two ranks never write to one.
  const std::size_t line = std::max<std::size_t>(packs::line / size, 1);
  const std::size_t each = packs::aligned((one.count + shares_ - 1) / shares_, line);
  return {std::min(rank * each, one.count), std::min((rank + 1) * each, one.count)};
}

COHORT_INLINE unsigned sequence::advance(std::vector<ended_call>& ended, bool aside) {
  if (first_ == calls_.size()) return 0;
  if (has_failed_) [[unlikely]]
    return aside ? 0 : end_failed(ended);
  unsigned steps = 0;
  if (differs_on_ < 0) [[likely]] {  // else there is only what all ranks have reduced
    if (has_to_lay()) steps += lay(aside) ? 1 : 0;
    if (summed_ != laid_) steps += reduce(aside) ? 1 : 0;
  }
  if (between_ && !aside) steps += carry();
  if (left_ != reduced_) steps += finish(ended, aside) ? 1 : 0;
  return steps;
}

COHORT_INLINE sequence::forgotten sequence::forget(const comm::request_operation& op) noexcept {
  for (std::size_t i = first_; i < calls_.size(); ++i) {
    pending_call& each = calls_[i];
    if (each.forgotten || !each.done.is_of(op)) continue;
    // Whoever has begun it talks of the caller's memory. Else it goes through a buffer: the
    // messages are the same.
    if (each.is_direct && i - first_ < begun()) return forgotten::never;
    each.is_direct = false;
    each.forgotten = true;
    ++forgotten_;
    return forgotten::here;
  }
  return forgotten::none;
}

// ---- a rank's part goes into its buffer --------------------------------------------------------

COHORT_INLINE bool sequence::lay(bool aside) {
  if (laid_ - left_ == depth) return false;
  if (laid_ >= depth && !all_reached(&progress_line::left, laid_ - depth + 1, all_left_)) {
    return false;
  }
  const pending_call& call = calls_[first_ + (entered_ - ended_)];
  if (aside && !call.only_copies()) return false;
  const bool is_short = call.what.count * call.size * blocks(call.what.kind) <= chunk_line::room;
  chunk_of& one = under_way_[laid_ % depth];
  one.call = entered_;
  one.begin = begin_;
  one.count = is_short ? call.what.count : std::min(chunk_room(call), call.what.count - begin_);
  one.last = one.begin + one.count == call.what.count;
  const bool shareable = call.what.kind == op_kind::all_reduce || call.what.kind == op_kind::reduce;
  one.shared = between_ || (shareable && one.count * call.size > whole_up_to_);
  one.in_line = !one.shared && is_short;
  if (is_in_slots(call.what.kind)) {
    lay_slots(call, one);
  } else if (!call.is_direct) {
    lay_down(call, one, buffer(rank_, laid_));
  }
  begin_ += one.count;
  if (one.last) {
    ++entered_;
    begin_ = 0;
  }
  chunk_line& tells = line_of(rank_, laid_);
  if (one.begin == 0) tells.call = call.mark;
  tells.left = left_;
  tells.laid.store(++laid_, std::memory_order_release);
  return true;
}

/// Elements, or those of one block, in whole cache lines.
COHORT_INLINE std::size_t sequence::chunk_room(const pending_call& call) const noexcept {
  const std::size_t room = chunk_ / call.size / blocks(call.what.kind);
  const std::size_t line = std::max<std::size_t>(packs::line / call.size, 1);
  return room > line ? room - room % line : room;
}

COHORT_INLINE const std::byte* sequence::own_input(const comm::collective_call& what) const {
  const void* const in = what.in == MPI_IN_PLACE ? what.out : what.in;
  return static_cast<const std::byte*>(in);
}

COHORT_INLINE void sequence::lay_down(const pending_call& call, const chunk_of& one,
                                      std::byte* to) const {
  const comm::collective_call& what = call.what;
  const std::size_t bytes = one.count * call.size;
  const std::size_t offset = one.begin * call.size;
  const std::size_t whole = what.count * call.size;
  if (call.forgotten) {  // the others go on
    std::fill_n(to, one.in_line ? chunk_line::room : chunk_, std::byte{0});
    return;
  }
  const bool is_root = call.root == rank_;
  const std::byte* const in = own_input(what);
  if (what.scattered != nullptr) {
    if (what.kind == op_kind::all_reduce || is_root) what.scattered->lay(offset, {to, bytes});
    return;
  }
  switch (what.kind) {
    case op_kind::all_reduce:
    case op_kind::reduce:
      if (one.shared) {  // its own share it reads where it is
        const share own = share_of(rank_, one, call.size);
        copy_bytes(to, in + offset, own.begin * call.size);
        copy_bytes(to + own.end * call.size, in + offset + own.end * call.size,
                   bytes - own.end * call.size);
      } else {
        copy_bytes(to, in + offset, bytes);
      }
      break;
    case op_kind::broadcast:
      if (is_root) copy_bytes(to, static_cast<const std::byte*>(what.out) + offset, bytes);
      break;
    case op_kind::all_gather:
      copy_bytes(to, in + (what.in == MPI_IN_PLACE ? rank_ * whole : 0) + offset, bytes);
      break;
    case op_kind::gather:  // the root's own block goes straight to its place
      if (!is_root) copy_bytes(to, in + offset, bytes);
      break;
    case op_kind::scatter:
      if (!is_root) break;
      [[fallthrough]];
    case op_kind::reduce_scatter:
    case op_kind::all_to_all:
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (rank != rank_) copy_bytes(to + rank * bytes, in + rank * whole + offset, bytes);
      }
      break;
    default:  // a barrier has no data
      break;
  }
}

// ---- every rank reduces its share --------------------------------------------------------------

COHORT_INLINE void sequence::gather_sources(std::uint64_t chunk, std::size_t offset,
                                            const std::byte* own) {
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sources_[rank] = buffer(rank, chunk) + offset;
  }
  if (own != nullptr) sources_[rank_] = own;
}

COHORT_INLINE void sequence::run(pending_call& call, std::byte* out, std::size_t count) {
  try {
    call.reduce(out, sources_, count, scratch_);
  } catch (const std::system_error& problem) {
    call.failed = problem.code();  // the others go on: they count on this rank's stages
  }
}

COHORT_INLINE bool sequence::reduce(bool aside) {
  if (!all_laid()) return false;
  const chunk_of& one = under_way_[summed_ % depth];
  if (aside && !call_of(one).only_copies()) return false;
  if (!all_agree(one)) return false;
  pending_call& call = call_of(one);
  if (one.shared && is_reduction(call.what.kind) && !call.is_direct) reduce_share(call, one);
  ++summed_;
  if (!between_) publish_reduced();
  return true;
}

COHORT_INLINE void sequence::reduce_share(pending_call& call, const chunk_of& one) {
  constexpr std::size_t piece = 16 * 1024;  // still in the nearest cache when it is copied
  const comm::collective_call& what = call.what;
  const std::size_t size = call.size;
  share own = share_of(rank_, one, size);
  const bool in_slots = is_in_slots(what.kind);
  if (in_slots) {
    if (ranks_ == 1) return;  // they lie there
    own = own_slots();
    own = {own.begin * one.count, own.end * one.count};
  }
  const bool is_laid = what.scattered != nullptr || call.forgotten || in_slots;
  // Over several nodes it is not the result yet.
  const bool is_mine = !between_ && gets_result(what.kind, call.root == rank_);
  if (call.forgotten) {
    std::fill_n(buffer(rank_, summed_) + own.begin * size, (own.end - own.begin) * size,
                std::byte{0});
  }
  const std::size_t step = std::max<std::size_t>(piece / size, 1);
  for (std::size_t at = own.begin; at < own.end; at += step) {
    const std::size_t count = std::min(step, own.end - at);
    const std::size_t offset = (one.begin + at) * size;
    gather_sources(summed_, at * size, is_laid ? nullptr : own_input(what) + offset);
    std::byte* const sum = result_of(rank_, summed_) + at * size;
    run(call, sum, count);
    if (!is_laid && is_mine)
      copy_bytes(static_cast<std::byte*>(what.out) + offset, sum, count * size);
  }
}

// ---- the result goes to its place --------------------------------------------------------------

COHORT_INLINE bool sequence::finish(std::vector<ended_call>& ended, bool aside) {
  const chunk_of one = under_way_[left_ % depth];
  if (aside && !call_of(one).only_copies()) return false;
  if (one.shared && !all_reached(&progress_line::reduced, left_ + 1, all_reduced_)) return false;
  copy_out(call_of(one), one, left_);
  lines_[rank_].left.store(++left_, std::memory_order_release);
  if (one.last) {
    const pending_call& last = calls_[first_++];
    ++ended_;
    if (last.forgotten) {
      --forgotten_;
    } else {
      ended.push_back({last.done, last.failed});
    }
  }
  return true;
}

COHORT_INLINE void sequence::copy_out(pending_call& call, const chunk_of& one,
                                      std::uint64_t number) {
  if (call.forgotten || call.is_direct) return;
  if (is_in_slots(call.what.kind)) return take_slots(call, one, number);
  const comm::collective_call& what = call.what;
  const std::size_t size = call.size;
  const std::size_t bytes = one.count * size;
  const std::size_t offset = one.begin * size;
  const std::size_t whole = what.count * size;
  const std::size_t root = call.root;
  auto* const out = static_cast<std::byte*>(what.out);
  const auto put = [&](std::size_t at, const std::byte* from, std::size_t length) {
    if (what.scattered != nullptr) {
      what.scattered->take(at, {from, length});
    } else {
      copy_bytes(out + at, from, length);
    }
  };
  switch (what.kind) {
    case op_kind::all_reduce:
    case op_kind::reduce:
      if (what.kind == op_kind::reduce && rank_ != root) break;
      if (!one.shared) {
        gather_sources(number, 0, nullptr);
        if (what.scattered == nullptr) {
          run(call, out + offset, one.count);
        } else {  // not in the buffer: others still read it
          run(call, result_.data(), one.count);
          what.scattered->take(offset, {result_.data(), bytes});
        }
        break;
      }
      for (std::size_t rank = 0; rank < shares_; ++rank) {
        if (rank == rank_ && what.scattered == nullptr && !between_)
          continue;  // there since it was reduced
        const share each = share_of(rank, one, size);
        put(offset + each.begin * size, result_of(rank, number) + each.begin * size,
            (each.end - each.begin) * size);
      }
      break;
    case op_kind::broadcast:
      if (rank_ == root) break;
      if (root < ranks_) {
        put(offset, buffer(root, number), bytes);
        break;
      }
      for (std::size_t rank = 0; rank < shares_; ++rank) {
        const share each = share_of(rank, one, size);
        put(offset + each.begin, buffer(rank, number) + each.begin, each.end - each.begin);
      }
      break;
    case op_kind::all_gather:
    case op_kind::gather:
      if (what.kind == op_kind::gather && rank_ != root) break;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (rank == rank_) continue;
        copy_bytes(out + rank * whole + offset, buffer(rank, number), bytes);
      }
      if (what.in != MPI_IN_PLACE) {
        copy_bytes(out + rank_ * whole + offset, static_cast<const std::byte*>(what.in) + offset,
                   bytes);
      }
      break;
    case op_kind::scatter:
      if (what.out == MPI_IN_PLACE) break;
      copy_bytes(out + offset,
                 rank_ == root ? own_input(what) + rank_ * whole + offset
                               : buffer(root, number) + rank_ * bytes,
                 bytes);
      break;
    case op_kind::reduce_scatter:
      gather_sources(number, rank_ * bytes, own_input(what) + rank_ * whole + offset);
      run(call, out + offset, one.count);
      break;
    case op_kind::all_to_all:
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (rank != rank_) {
          copy_bytes(out + rank * whole + offset, buffer(rank, number) + rank_ * bytes, bytes);
        } else if (what.in != MPI_IN_PLACE) {
          copy_bytes(out + rank * whole + offset, own_input(what) + rank * whole + offset, bytes);
        }
      }
      break;
    default:  // a barrier has no data
      break;
  }
}

COHORT_INLINE void sequence::fail(std::error_code why, std::vector<ended_call>& ended) {
  const bool has_messages = between_ && between_->any_under_way();
  std::size_t kept = first_;
  for (std::size_t i = first_; i != calls_.size(); ++i) {
    const pending_call& each = calls_[i];
    if (has_messages && each.is_direct && i - first_ < begun()) {
      calls_[kept] = each;
      calls_[kept++].failed = why;
    } else if (!each.forgotten) {
      ended.push_back({each.done, why});
    }
  }
  calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(kept), calls_.end());
  forgotten_ = 0;
  has_failed_ = true;
  if (between_) between_->fail(why);
}

COHORT_INLINE unsigned sequence::end_failed(std::vector<ended_call>& ended) {
  between_->look();
  if (between_->any_under_way()) return 0;
  fail(calls_[first_].failed, ended);
  return 1;
}

COHORT_INLINE std::string sequence::line() const {
  const comm::collective_call& what = calls_[first_].what;
  const char* const unit = is_reduction(what.kind) ? " elements, " : " bytes, ";
  std::string text = "rank " + std::to_string(rank_of(rank_)) + ": shared memory: ";
  text += name_of(what.kind);
  text += " of " + std::to_string(what.count) + unit + std::to_string(pending() - 1) +
          " behind it, waits for ranks";
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (line_of(rank, left_).laid.load(std::memory_order_relaxed) <= left_) {
      text += ' ' + std::to_string(rank_of(rank));
    }
  }
  if (between_) text += between_->waits_for();
  return text;
}

}  // namespace cohort::shm::detail
