// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/data/data_plane.hpp.

#include <cohort/coordinator/data/data_plane.hpp>

#include <bit>

namespace cohort::coordination {

/// Of messages between two ranks. They are posted in the order of the log, and those that an
/// exchange of much data consists of have the tag 0.
inline constexpr int message_tag = 1;

// ---- lanes -----------------------------------------------------------------------------------

template <class Any>
bool basic_lane<Any>::advanced(request_operation* base) {
  auto* self = static_cast<lane*>(base);
  if (self->owner_ == nullptr) return false;
  const comm::request_source::guard hold(self->owner_->plane_.state_->source);
  return self->owner_->step(*self);
}

// A backend's completion arrives here; those of MPI have ended the lane before.
template <class Any>
void basic_lane<Any>::run(operation* base, action what) {
  auto* self = static_cast<lane*>(base);
  if (self->owner_ != nullptr && what != action::destroy) {
    const comm::request_source::guard hold(self->owner_->plane_.state_->source);
    if (self->owner_->step(*self)) return;
  } else if (self->owner_ != nullptr) {
    std::erase(self->owner_->plane_.with_backend_, self);
    std::erase(self->owner_->plane_.with_device_, self);
  }
  delete self;
}

template <class Any>
void basic_lane<Any>::lay(std::size_t offset, std::span<std::byte> to) noexcept {
  owner_->fill_pack(owner_->calls_[call], laid_, offset, to);
}

template <class Any>
void basic_lane<Any>::take(std::size_t offset, std::span<const std::byte> from) noexcept {
  owner_->empty_pack(owner_->calls_[call], taken_, offset, from);
}

// ---- executions ------------------------------------------------------------------------------

template <class Any>
basic_execution<Any>::basic_execution(data_plane& plane) noexcept : plane_(plane) {}

template <class Any>
void basic_execution<Any>::reset() noexcept {
  tasks.clear();
  tensors_.clear();
  calls_.clear();
  told_.clear();
  known = is_join = started_ = exchanged_ = false;
  newest = log_count = 0;
  next_call_ = lanes_ = slot_ = 0;
  bytes_ = 0;
  rows.reset();
  scratch_ = {};
  sent_.reset();
  received_.reset();
  creation_.reset();
  failed_ = {};
  spans_.clear();
  if (device_call_) {
    device_call_->tensors.clear();
    device_call_->marks.clear();
    device_call_->sent.clear();
    device_call_->received.clear();
    device_call_->use = comm::device_use::run;
    device_call_->graph.reset();
    device_call_->arena.reset();
  }
}

// Tensors lie at multiples of their size, up to a cache line: small ones do not grow.
template <class Any>
std::size_t basic_execution<Any>::aligned(std::size_t offset, std::size_t bytes) noexcept {
  const std::size_t unit =
      std::min(fusion_allocator::alignment, std::bit_ceil(std::max<std::size_t>(bytes, 1)));
  return (offset + unit - 1) / unit * unit;
}

template <class Any>
std::int64_t basic_execution<Any>::divisor(const task& of) const noexcept {
  const bool all = (of.flags & protocol::signature_flag::divide_by_all) != 0;
  return all ? here->size : static_cast<std::int64_t>(std::max<std::uint64_t>(of.contributors, 1));
}

template <class Any>
void basic_execution<Any>::prepare() {
  if (is_join) {
    bytes_ = sizeof(join_value_);
    return;
  }
  for (const task* one : tasks) {
    for (std::size_t i = 0; i < one->tensors(); ++i) {
      const tensor& each = (*one)[i];
      if (each.kernels == nullptr) continue;
      tensors_.emplace_back(&each, one);
      bytes_ += each.bytes();
    }
  }
  if (fuses()) split();
}

template <class Any>
bool basic_execution<Any>::converts(const tensor& what, const task& of) noexcept {
  if ((of.flags & protocol::signature_flag::half_on_wire) == 0) return false;
  const auto element = static_cast<element_type>(what.kernels->element);
  return element == element_type::float16 || element == element_type::bfloat16;
}

// Runs of small tensors of one type travel together, large ones alone and in pieces. All ranks come
// to the same calls, for they know the same sizes and options.
template <class Any>
void basic_execution<Any>::split() {
  const coordinator_options& options = plane_.options_;
  const bool reduces = tasks.front()->kind == op_kind::all_reduce;
  std::size_t end = 0;  // of the run, in bytes
  for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
    const tensor& each = *tensors_[i].first;
    const std::size_t bytes = each.bytes();
    // What is converted must fit into a buffer.
    const bool bounded = converts(each, *tensors_[i].second);
    const bool small =
        bytes <= options.fusion_threshold && (!bounded || bytes <= options.fusion_buffer);
    if (small && !calls_.empty() && calls_.back().count == 0) {
      call& run = calls_.back();
      const tensor& head = *tensors_[run.first].first;
      const std::size_t next = aligned(end, bytes) + bytes;
      const bool alike = !reduces || (head.kernels->element == each.kernels->element &&
                                      head.operation == each.operation);
      if (alike && next <= options.fusion_buffer) {
        ++run.tensors;
        end = next;
        continue;
      }
    }
    if (small) {
      calls_.push_back({i, 1, 0, 0});
      end = bytes;
      continue;
    }
    const std::size_t unit = unit_of(each);
    const std::size_t most = bounded ? std::min(options.piece, options.fusion_buffer)
                                     : static_cast<std::size_t>(options.piece);
    const std::size_t piece = std::max<std::size_t>(most / unit, 1);
    const std::size_t all = bytes / unit;
    for (std::size_t offset = 0; offset < all; offset += piece) {
      calls_.push_back({i, 1, offset, std::min(piece, all - offset)});
    }
  }
}

template <class Any>
std::size_t basic_execution<Any>::load() const noexcept {
  if (on_device()) return 0;  // its backend knows what it bears
  if (calls_.size() < 2) return bytes_;
  const coordinator_options& options = plane_.options_;
  return std::min(bytes_, static_cast<std::size_t>(options.piece) * options.pieces_in_flight);
}

template <class Any>
lane& basic_execution<Any>::new_lane() {
  auto* fresh = new lane(*this);
  fresh->verb = is_join ? "join" : tasks.front()->verb().data();
  fresh->sequence = log_count;
  fresh->rank = here->rank;
  fresh->bytes = std::min<std::size_t>(bytes_, std::size_t{1} << 30);
  ++lanes_;
  return *fresh;
}

template <class Any>
void basic_execution<Any>::add(lane& on, int return_code, const MPI_Request& request) {
  mpi::check(return_code, on.verb);
  plane_.state_->source.add(request, on);
}

// A lane that has not posted anything is nobody's: the engine will not deliver it.
template <class Any>
template <class Post>
void basic_execution<Any>::begin(Post post) {
  lane& on = new_lane();
  try {
    post(on);
  } catch (...) {
    if (!comm::request_source::pending(on)) {
      on.owner_ = nullptr;
      --lanes_;
      delete &on;
    }
    throw;
  }
}

template <class Any>
void basic_execution<Any>::start(std::uint32_t slot) {
  slot_ = slot;
  started_ = true;
  begun = plane_.traced ? clock::now() : plane_.state_->engine.coarse_now();
  if (tools::watched()) {
    const std::string_view verb = is_join ? "join" : tasks.front()->verb();
    watched_.begin(tools::category::data, tools::literal(verb), bytes_);
  }
  if (is_join) {
    // The newest data, and among equals the highest rank.
    const auto size = static_cast<std::uint64_t>(here->size);
    join_value_ = newest * size + static_cast<std::uint64_t>(here->rank);
    begin([this](lane& on) {
      MPI_Request request = MPI_REQUEST_NULL;
      add(on,
          mpi::post::iallreduce(MPI_IN_PLACE, &join_value_, 1, MPI_UINT64_T, MPI_MAX, here->shared,
                                &request),
          request);
    });
    return;
  }
  if (on_device()) return start_device();
  if (exchanges()) {
    begin([this](lane& on) { post_exchange(on); });
    return;
  }
  if (sized()) {
    begin([this](lane& on) {
      post_sized(on, here->shared);
      count(on, bytes_);
    });
    return;
  }
  if (!fuses()) {
    begin([this](lane& on) {
      post_alone(on, here->shared);
      count(on, bytes_);
    });
    return;
  }
  const bool whole = calls_.size() <= 1;
  const MPI_Comm where = whole ? here->shared : here->slots[slot_];
  const std::size_t window = std::min<std::size_t>(plane_.options_.pieces_in_flight, calls_.size());
  for (std::size_t i = 0; i < window; ++i) {
    begin([this, where](lane& on) {
      post_call(on, where);
      count(on, pack_bytes(calls_[on.call]));
    });
  }
}

template <class Any>
bool basic_execution<Any>::give_to_backend(lane& on, comm::collective_call what, MPI_Comm where) {
  if (plane_.backend_ == nullptr) return false;
  what.order = where == here->shared ? 0 : 1 + slot_;
  if (!plane_.backend_->takes(what)) return false;
  auto& lanes = plane_.with_backend_;
  if (lanes.size() == lanes.capacity()) lanes.reserve(2 * lanes.size() + 8);
  plane_.backend_->start(what, comm::backend_completion(plane_.state_->engine, on));
  on.waits_for_turn_ = true;  // without a request, and not at its end
  lanes.push_back(&on);
  return true;
}

template <class Any>
void basic_execution<Any>::count(const lane& on, std::size_t bytes) noexcept {
  const auto by = on_device()                        ? &coordinator_statistics::by_device
                  : on.waits_for_turn_ && !creation_ ? &coordinator_statistics::by_backend
                                                     : &coordinator_statistics::by_mpi;
  plane_.owner_.data_started(*this, by, bytes);
}

template <class Any>
std::size_t basic_execution<Any>::pack_bytes(const call& what) const noexcept {
  if (what.count != 0) return what.count * unit_of(*tensors_[what.first].first);
  std::size_t end = 0;
  for (std::uint32_t i = 0; i < what.tensors; ++i) {
    const std::size_t bytes = tensors_[what.first + i].first->bytes();
    end = aligned(end, bytes) + bytes;
  }
  return end;
}

template <class Any>
template <class Visit, class Gap>
void basic_execution<Any>::walk_pack(const call& what, pack_position& at, std::size_t offset,
                                     std::size_t bytes, Visit visit, Gap gap) const {
  if (what.count != 0) {  // a piece
    const auto& [each, of] = tensors_[what.first];
    visit(*each, *of, what.offset * unit_of(*each) + offset, std::size_t{0}, bytes);
    return;
  }
  std::size_t done = 0;
  while (at.tensor < what.tensors) {
    const auto& [each, of] = tensors_[what.first + at.tensor];
    const std::size_t size = each->bytes();
    const std::size_t begin = aligned(at.end, size);
    if (offset + done < begin) {
      const std::size_t length = std::min(begin - (offset + done), bytes - done);
      gap(done, length);
      done += length;
    }
    const std::size_t inside = offset + done - begin;
    if (offset + done < begin) return;
    const std::size_t length = std::min(size - inside, bytes - done);
    if (length != 0) visit(*each, *of, inside, done, length);
    done += length;
    if (inside + length != size) return;
    at.end = begin + size;
    ++at.tensor;
  }
  if (done != bytes) gap(done, bytes - done);
}

// Scale factors are folded into the copy; gaps are zero, so that no reduction meets rubbish.
template <class Any>
void basic_execution<Any>::fill_pack(const call& what, pack_position& at, std::size_t offset,
                                     std::span<std::byte> to) {
  const tools::range copying(tools::category::pack, tools::literal("pack"), to.size());
  const auto begun_at = plane_.traced ? clock::now() : clock::time_point();
  const bool reduces = tasks.front()->kind == op_kind::all_reduce;
  walk_pack(
      what, at, offset, to.size(),
      [&](const tensor& each, const task& of, std::size_t inside, std::size_t place,
          std::size_t length) {
        const std::byte* in = static_cast<const std::byte*>(each.in) + each.place_of(inside);
        if (reduces) {
          lay_values(to.data() + place, in, length / each.kernels->size, each, of);
        } else {
          std::memcpy(to.data() + place, in, length);
        }
      },
      [&](std::size_t place, std::size_t length) { std::memset(to.data() + place, 0, length); });
  if (plane_.traced) spans_.push_back({phase::pack, begun_at, clock::now(), to.size()});
}

template <class Any>
void basic_execution<Any>::empty_pack(const call& what, pack_position& at, std::size_t offset,
                                      std::span<const std::byte> from) {
  const tools::range copying(tools::category::unpack, tools::literal("unpack"), from.size());
  const auto begun_at = plane_.traced ? clock::now() : clock::time_point();
  const bool reduces = tasks.front()->kind == op_kind::all_reduce;
  walk_pack(
      what, at, offset, from.size(),
      [&](const tensor& each, const task& of, std::size_t inside, std::size_t place,
          std::size_t length) {
        std::byte* out = static_cast<std::byte*>(each.out) + each.place_of(inside);
        if (reduces) {
          finish_values(out, from.data() + place, length / each.kernels->size, each, of);
        } else {
          std::memcpy(out, from.data() + place, length);
        }
      },
      [](std::size_t, std::size_t) {});
  if (plane_.traced) spans_.push_back({phase::unpack, begun_at, clock::now(), from.size()});
}

/// Gives a pack to a backend that packs itself.
template <class Any>
bool basic_execution<Any>::stage(lane& on, std::size_t count, MPI_Comm where) {
  if (plane_.backend_ == nullptr || !plane_.backend_->stages()) return false;
  const task& head = *tasks.front();
  const bool reduces = head.kind == op_kind::all_reduce;
  const tensor& first = *tensors_[calls_[on.call].first].first;
  // What a backend asks for ends anywhere between two elements; they must lie at multiples.
  if (reduces && !std::has_single_bit(first.kernels->size)) return false;
  comm::collective_call given{reduces ? comm::collective::all_reduce : comm::collective::broadcast,
                              nullptr,
                              nullptr,
                              count,
                              reduces ? first.kernels->type() : MPI_BYTE,
                              reduces ? first.operation : MPI_OP_NULL,
                              reduces ? 0 : head.root};
  given.staged = &on;
  return give_to_backend(on, given, where);
}

// The next call of a fused operation.
template <class Any>
void basic_execution<Any>::post_call(lane& on, MPI_Comm where) {
  on.call = next_call_++;
  const call& what = calls_[on.call];
  const tensor& head = *tensors_[what.first].first;
  const bool reduces = tasks.front()->kind == op_kind::all_reduce;
  const std::size_t size = unit_of(head);
  const bool is_root = tasks.front()->root == here->rank;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = what.count;
  if (packs(what)) {
    const std::size_t end = (pack_bytes(what) + size - 1) / size * size;
    on.laid_ = on.taken_ = {};
    on.staged_ = stage(on, end / size, where);
    if (on.staged_) return;
    on.pack = plane_.fusion.take(end);
    std::byte* to = on.pack.data();
    if (reduces || is_root) fill_pack(what, on.laid_, 0, std::span(to, end));
    in = MPI_IN_PLACE;
    out = to;
    count = end / size;
  } else {
    if (count == 0) count = head.bytes() / size;
    const std::size_t offset = what.offset * size;
    in = static_cast<const std::byte*>(head.in) + offset;
    out = static_cast<std::byte*>(head.out) + offset;
    const double factor = tensors_[what.first].second->prescale;
    if (reduces && factor != 1) {
      head.kernels->scale(out, in, count, factor);
      in = MPI_IN_PLACE;
    } else if (in == out) {
      in = MPI_IN_PLACE;
    }
  }
  MPI_Request request = MPI_REQUEST_NULL;
  if (reduces) {
    const MPI_Datatype type = head.kernels->type();
    const comm::collective_call given{
        comm::collective::all_reduce, in, out, count, type, head.operation, 0};
    if (give_to_backend(on, given, where)) return;
    add(on,
        mpi::post::iallreduce(in, out, static_cast<MPI_Count>(count), type, head.operation, where,
                              &request),
        request);
  } else {
    const int root = tasks.front()->root;
    const comm::collective_call given{
        comm::collective::broadcast, MPI_IN_PLACE, out, count, MPI_BYTE, MPI_OP_NULL, root};
    if (give_to_backend(on, given, where)) return;
    add(on, mpi::post::ibcast(out, static_cast<MPI_Count>(count), MPI_BYTE, root, where, &request),
        request);
  }
}

template <class Any>
void basic_execution<Any>::lay_values(void* out, const void* in, std::size_t n, const tensor& what,
                                      const task& of) {
  if (what.wire != nullptr) {
    what.wire->pack(out, in, n, of.prescale);
  } else if (of.prescale != 1) {
    what.kernels->scale(out, in, n, of.prescale);
  } else if (n != 0) {
    std::memcpy(out, in, n * what.kernels->size);
  }
}

template <class Any>
void basic_execution<Any>::finish_values(void* out, const void* in, std::size_t n,
                                         const tensor& what, const task& of) const {
  const element_kernels& kernels = *what.kernels;
  if (what.wire != nullptr) {
    const bool divides = of.code == reduction_code::average;
    what.wire->unpack(out, in, n, of.postscale, divides ? divisor(of) : 1);
    return;
  }
  if (of.code == reduction_code::average) {
    if (of.postscale == 1) {
      kernels.divide(out, in, n, divisor(of));
    } else {
      kernels.scale(out, in, n, of.postscale / static_cast<double>(divisor(of)));
    }
  } else if (of.postscale != 1) {
    kernels.scale(out, in, n, of.postscale);
  } else if (out != in && n != 0) {
    std::memcpy(out, in, n * kernels.size);
  }
}

template <class Any>
void basic_execution<Any>::finish_call(lane& on) {
  const call& what = calls_[on.call];
  const bool reduces = tasks.front()->kind == op_kind::all_reduce;
  const bool is_root = tasks.front()->root == here->rank;
  if (packs(what)) {
    if (!on.staged_ && (reduces || !is_root)) {
      empty_pack(what, on.taken_, 0, std::span(on.pack.data(), pack_bytes(what)));
    }
    on.pack = {};
  } else if (reduces) {
    const auto& [each, of] = tensors_[what.first];
    void* out = static_cast<std::byte*>(each->out) + what.offset * each->kernels->size;
    finish_values(out, out, what.count == 0 ? each->count : what.count, *each, *of);
  }
}

// Bytes as MPI counts them: what an int cannot count is one element of a derived type.
template <class Any>
mpi::layout basic_execution<Any>::layout_of(const void* data, std::size_t bytes) {
  return mpi::layout(buffer_view<const std::byte>(static_cast<const std::byte*>(data), bytes),
                     mpi::large_count::fold);
}

// A reduction to one rank of more than MPI can count, in parts. Smaller ones than need be: with
// MPI_Ireduce of 2^31-1 bytes Open MPI 4.1 was not done after 100 s, with such parts after 30.
template <class Any>
void basic_execution<Any>::post_reduce(lane& on, MPI_Comm where, const tensor& what, const void* in,
                                       void* out, std::size_t count, int root) {
  const MPI_Datatype type = what.kernels->type();
  constexpr std::size_t most = std::size_t{1} << 26U;
  std::size_t first = 0;
  do {
    const std::size_t offset = first * what.kernels->size;
    const std::size_t part = std::min(count - first, most);
    const void* from = in == MPI_IN_PLACE ? in : static_cast<const std::byte*>(in) + offset;
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = mpi::post::ireduce(from, static_cast<std::byte*>(out) + offset,
                                      static_cast<MPI_Count>(part), type, what.operation, root,
                                      where, &request);
    add(on, rc, request);
    first += part;
  } while (first < count);
}

template <class Any>
template <class Visit>
std::size_t basic_execution<Any>::walk_scratch(Visit visit) const {
  const task& only = *tasks.front();
  // Not empty: some MPI libraries refuse two buffers in one place.
  const auto padded = [](std::size_t bytes) {
    return aligned(std::max<std::size_t>(bytes, 1), fusion_allocator::alignment);
  };
  std::size_t end = 0;
  for (std::size_t i = 0; i < only.tensors(); ++i) {
    const tensor& what = only[i];
    const std::size_t in = end;
    if (what.wire != nullptr || only.prescale != 1) end += padded(what.bytes());
    std::size_t out = in;
    if (what.wire != nullptr && only.kind == op_kind::reduce_scatter) {
      out = end;
      end += padded(part_of(what.count, here->rank, here->size) * what.kernels->size);
    }
    visit(what, in, out);
  }
  return end;
}

/// Copies what is scaled or converted; `post` gets each tensor and its buffers.
template <class Any>
template <class Post>
void basic_execution<Any>::lay_scratch(Post post) {
  const task& only = *tasks.front();
  const std::size_t room = walk_scratch([](const tensor&, std::size_t, std::size_t) {});
  if (room != 0) scratch_ = plane_.fusion.take(room);
  walk_scratch([&](const tensor& what, std::size_t in, std::size_t out) {
    if (what.wire == nullptr && only.prescale == 1) return post(what, what.in, what.out);
    std::byte* const laid = scratch_.data() + in;
    lay_values(laid, what.in, what.count, what, only);
    post(what, static_cast<const void*>(laid),
         what.wire == nullptr ? what.out : static_cast<void*>(scratch_.data() + out));
  });
}

// A reduce of several tensors. Of each there is a request, also where it is empty.
template <class Any>
void basic_execution<Any>::post_bundle(lane& on, MPI_Comm where) {
  const task& only = *tasks.front();
  const bool scatters = only.kind == op_kind::reduce_scatter;
  const auto ranks = static_cast<std::size_t>(here->size);
  lay_scratch([&](const tensor& what, const void* in, void* out) {
    if (!scatters) {
      if (in == out && only.root == here->rank) in = MPI_IN_PLACE;
      post_reduce(on, where, what, in, out, what.count, only.root);
    } else if (what.count % ranks == 0 && what.count <= mpi::max_int_count) {
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc =
          mpi::post::ireduce_scatter_block(in, out, static_cast<MPI_Count>(what.count / ranks),
                                           what.kernels->type(), what.operation, where, &request);
      add(on, rc, request);
    } else {  // parts of two sizes; and MPI libraries add parts up in an int
      for (int rank = 0; rank < here->size; ++rank) {
        const std::size_t part = part_of(what.count, rank, here->size);
        post_reduce(on, where, what, in, out, part, rank);
        in = static_cast<const std::byte*>(in) + part * what.kernels->size;
      }
    }
  });
}

// Kinds that are never packed.
template <class Any>
void basic_execution<Any>::post_alone(lane& on, MPI_Comm where) {
  const task& only = *tasks.front();
  const tensor& what = only.first;
  const auto ranks = static_cast<std::size_t>(here->size);
  const std::size_t size = what.kernels == nullptr ? 1 : what.kernels->size;
  const bool is_root = only.root == here->rank;
  MPI_Request request = MPI_REQUEST_NULL;
  int rc = MPI_SUCCESS;
  comm::collective_call given{comm::collective::barrier, nullptr, nullptr, 0, MPI_BYTE, MPI_OP_NULL,
                              std::max(only.root, 0)};
  const void* in = what.in;
  void* out = what.out;
  std::size_t bytes = what.count * size;
  switch (only.kind) {
    case op_kind::barrier:
      if (give_to_backend(on, given, where)) return;
      rc = MPI_Ibarrier(where, &request);
      break;
    case op_kind::reduce: {
      if (only.tensors() > 1) return post_bundle(on, where);
      lay_scratch([&](const tensor&, const void* from, void* to) {
        in = from;
        out = to;
      });
      const MPI_Datatype type = what.kernels->type();
      if (is_root && in == out) in = MPI_IN_PLACE;
      if (what.count > mpi::max_int_count) {
        return post_reduce(on, where, what, in, out, what.count, only.root);
      }
      given.kind = comm::collective::reduce;
      given.in = in;
      given.out = out;
      given.count = what.count;
      given.type = type;
      given.op = what.operation;
      if (give_to_backend(on, given, where)) return;
      rc = mpi::post::ireduce(in, out, static_cast<MPI_Count>(what.count), type, what.operation,
                              only.root, where, &request);
      break;
    }
    case op_kind::reduce_scatter: {
      if (only.sizes.empty()) return post_bundle(on, where);
      // `sizes` are the elements of each rank's part.
      lay_scratch([&](const tensor&, const void* from, void* to) {
        in = from;
        out = to;
      });
      const MPI_Datatype type = what.kernels->type();
      if (what.count > mpi::max_int_count) {  // MPI libraries add the parts up in an int
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const auto part = static_cast<std::size_t>(only.sizes[rank]);
          post_reduce(on, where, what, in, out, part, static_cast<int>(rank));
          in = static_cast<const std::byte*>(in) + part * size;
        }
        return;
      }
      const bool equal = only.sizes.front() == only.sizes.back();
      if (equal) {
        given.kind = comm::collective::reduce_scatter;
        given.in = in;
        given.out = out;
        given.count = static_cast<std::size_t>(only.sizes.front());
        given.type = type;
        given.op = what.operation;
        if (give_to_backend(on, given, where)) return;
        rc = mpi::post::ireduce_scatter_block(in, out, static_cast<MPI_Count>(only.sizes.front()),
                                              type, what.operation, where, &request);
      } else {
        const std::vector<std::size_t> counts(only.sizes.begin(), only.sizes.end());
        received_.emplace(counts, std::vector<std::size_t>(counts.size()), type);
        rc = mpi::post::ireduce_scatter(in, out, *received_, what.operation, where, &request);
      }
      break;
    }
    case op_kind::group_create:
      if (only.made != nullptr) {
        creation_ = std::make_unique<comm::creation>(*plane_.state_, on);
        creation_->begin();
        plane_.state_->engine.started();
        return;
      }
      [[fallthrough]];           // on devices it needs no communicator
    case op_kind::set_add:       // made by its members; not an operation on data
    case op_kind::group_remove:  // a barrier: no start is in anybody's way
      rc = MPI_Ibarrier(where, &request);
      break;
    case op_kind::gather: {
      given.kind = comm::collective::gather;
      given.in = in;
      given.out = out;
      given.count = bytes;
      if (give_to_backend(on, given, where)) return;
      const mpi::layout block = layout_of(in, bytes);
      rc = mpi::post::igather(in, block.count(), block.type(), out, block.count(), block.type(),
                              only.root, where, &request);
      break;
    }
    case op_kind::scatter: {
      bytes /= ranks;  // the signature's shape is that of the whole
      given.kind = comm::collective::scatter;
      given.in = in;
      given.out = out;
      given.count = bytes;
      if (give_to_backend(on, given, where)) return;
      const mpi::layout block = layout_of(in, bytes);
      rc = mpi::post::iscatter(in, block.count(), block.type(), out, block.count(), block.type(),
                               only.root, where, &request);
      break;
    }
    case op_kind::message: {
      const mpi::layout block = layout_of(only.sends ? in : out, bytes);
      rc = only.sends ? mpi::post::isend(in, block.count(), block.type(), only.peer, message_tag,
                                         where, &request)
                      : mpi::post::irecv(out, block.count(), block.type(), only.peer, message_tag,
                                         where, &request);
      break;
    }
    default:
      throw error(errc::not_supported, "data plane");
  }
  add(on, rc, request);
}

template <class Any>
void basic_execution<Any>::finish_alone() {
  const task& only = *tasks.front();
  const bool scatters = only.kind == op_kind::reduce_scatter;
  if (!scatters && (only.kind != op_kind::reduce || only.root != here->rank)) return;
  walk_scratch([&](const tensor& what, std::size_t, std::size_t out) {
    const void* const come = what.wire == nullptr ? what.out : scratch_.data() + out;
    std::size_t mine = what.count;
    if (scatters) {
      mine = only.sizes.empty()
                 ? part_of(what.count, here->rank, here->size)
                 : static_cast<std::size_t>(only.sizes[static_cast<std::size_t>(here->rank)]);
    }
    finish_values(what.out, come, mine, what, only);
  });
}

// [protocol Z1]
template <class Any>
void basic_execution<Any>::post_exchange(lane& on) {
  const task& only = *tasks.front();
  const auto ranks = static_cast<std::size_t>(here->size);
  const bool same = only.kind == op_kind::all_gather;
  rows->rows.assign(same ? ranks * only.told : ranks, 0);
  told_ = only.sizes;
  told_.resize(same ? only.told : ranks);  // a joined rank brings nothing
  // All ranks must know of the data of any that may not fit: below that they fit everywhere.
  std::size_t mine = 0;
  for (const std::int64_t one : told_) mine += static_cast<std::size_t>(one) * only.row_bytes;
  if (!mpi::has_large_counts && mine > mpi::max_int_count / ranks) {
    for (std::int64_t& one : told_) one = ~one;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  const auto each = static_cast<MPI_Count>(only.told);
  const int rc = same ? mpi::post::iallgather(told_.data(), each, MPI_INT64_T, rows->rows.data(),
                                              each, MPI_INT64_T, here->shared, &request)
                      : mpi::post::ialltoall(told_.data(), 1, MPI_INT64_T, rows->rows.data(), 1,
                                             MPI_INT64_T, here->shared, &request);
  add(on, rc, request);
}

template <class Any>
void basic_execution<Any>::take_sizes() {
  rows->large = false;
  for (std::int64_t& one : rows->rows) {
    if (one >= 0) continue;
    one = ~one;
    rows->large = true;
  }
}

template <class Any>
void basic_execution<Any>::post_sized(lane& on, MPI_Comm where) {
  task& only = *tasks.front();
  const std::vector<std::int64_t>& come = rows->rows;
  void* out = only.make_result(only, come);
  std::vector<std::size_t> counts(come.size());
  std::size_t all = 0;
  for (std::size_t i = 0; i < come.size(); ++i) {
    counts[i] = static_cast<std::size_t>(come[i]) * only.row_bytes;
    all += counts[i];
  }
  bytes_ = all;
  if (rows->large) return post_messages(on, where, static_cast<std::byte*>(out), counts);
  received_.emplace(counts, MPI_BYTE);
  MPI_Request request = MPI_REQUEST_NULL;
  int rc = MPI_SUCCESS;
  if (only.kind == op_kind::all_gather) {
    const auto me = static_cast<std::size_t>(here->rank);
    const MPI_Count own =
        received_->large() ? static_cast<MPI_Count>(counts[me]) : received_->counts()[me];
    rc = mpi::post::iallgatherv(only.first.in, own, received_->type(), out, *received_, where,
                                &request);
  } else {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      counts[i] =
          i < only.sizes.size() ? static_cast<std::size_t>(only.sizes[i]) * only.row_bytes : 0;
    }
    sent_.emplace(counts, MPI_BYTE);
    rc = mpi::post::ialltoallv(only.first.in, *sent_, out, *received_, where, &request);
  }
  add(on, rc, request);
}

// Where counts and places may be too large for an int: a message for each pair of ranks.
template <class Any>
void basic_execution<Any>::post_messages(lane& on, MPI_Comm where, std::byte* out,
                                         std::span<const std::size_t> come) {
  const task& only = *tasks.front();
  const bool same = only.kind == op_kind::all_gather;  // the whole for every rank
  const auto* in = static_cast<const std::byte*>(only.first.in);
  for (std::size_t i = 0; i < come.size(); ++i) {
    const mpi::layout block = layout_of(out, come[i]);
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc =
        mpi::post::irecv(out, block.count(), block.type(), static_cast<int>(i), 0, where, &request);
    add(on, rc, request);
    out += come[i];
  }
  for (std::size_t i = 0; i < come.size(); ++i) {
    const std::size_t k = same ? 0 : i;
    const std::size_t bytes =
        k < only.sizes.size() ? static_cast<std::size_t>(only.sizes[k]) * only.row_bytes : 0;
    const mpi::layout block = layout_of(in, bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc =
        mpi::post::isend(in, block.count(), block.type(), static_cast<int>(i), 0, where, &request);
    add(on, rc, request);
    if (!same && bytes != 0) in += bytes;
  }
}

template <class Any>
bool basic_execution<Any>::borrows() const noexcept {
  if (is_join ||
      std::none_of(tasks.begin(), tasks.end(), [](const task* one) { return one->linked; })) {
    return false;
  }
  if (on_device()) return device_has_it_;
  if (sized()) return exchanged_ || known;
  if (fuses()) {
    return std::any_of(calls_.begin(), calls_.end(),
                       [this](const call& one) { return !packs(one); });
  }
  const op_kind kind = tasks.front()->kind;
  return kind != op_kind::barrier && kind != op_kind::group_create && kind != op_kind::group_remove;
}

template <class Any>
void basic_execution<Any>::broke(std::error_code why) noexcept {
  if (!failed_) failed_ = why;
  next_call_ = static_cast<std::uint32_t>(calls_.size());
}

// Nothing escapes from here: what goes wrong is remembered and ends the execution. A stage may have
// posted some of its requests by then: the lane goes on until MPI is done with these, for they work
// on memory of callers.
template <class Any>
bool basic_execution<Any>::step(lane& on) {
  if (!is_join && on_device()) return step_on_device(on);
  if (on.waits_for_turn_) std::erase(plane_.with_backend_, &on);
  on.waits_for_turn_ = false;
  if (given_up_) return false;
  try {
    const auto take = [this](mpi::comm made) { *tasks.front()->made = made.release(); };
    if (creation_ && creation_->goes_on(take)) return true;
    creation_.reset();
    if (on.failed()) broke(on.error());
    if (!failed_ && !is_join) {
      if (exchanges() && !exchanged_) {
        exchanged_ = true;
        take_sizes();
        plane_.queue_.exchanged(log_count);
        post_sized(on, here->slots[slot_]);
        count(on, bytes_);
        plane_.queue_.posted_last(here->set, slot_);
        plane_.run();
        return true;
      }
      if (fuses()) {
        finish_call(on);
        if (next_call_ < calls_.size()) {
          post_call(on, here->slots[slot_]);
          count(on, pack_bytes(calls_[on.call]));
          if (next_call_ == calls_.size()) {
            plane_.queue_.posted_last(here->set, slot_);
            plane_.run();
          }
          return true;
        }
      } else if (!sized()) {
        finish_alone();
      }
    }
  } catch (const std::system_error& problem) {
    broke(problem.code());
  } catch (...) {
    broke(std::make_error_code(std::errc::not_enough_memory));
  }
  if (comm::request_source::pending(on)) {
    settle();
    return true;
  }
  lane_ended(on);
  return false;
}

template <class Any>
void basic_execution<Any>::lane_ended(lane& on) noexcept {
  on.owner_ = nullptr;
  on.pack = {};
  --lanes_;
  settle();
}

template <class Any>
void basic_execution<Any>::settle() noexcept {
  if (lanes_ == 0) {
    plane_.done(*this);
  } else if (failed_) {
    plane_.owner_.data_broke(*this, failed_);
  }
}

// ---- the plane -------------------------------------------------------------------------------

template <class Any>
execution& basic_data_plane<Any>::make(const set_place& here) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<execution>(*this));
    free_.reserve(all_.size());
    all_.back()->here = &here;
    return *all_.back();
  }
  execution* one = free_.back();
  free_.pop_back();
  one->here = &here;
  return *one;
}

template <class Any>
void basic_data_plane<Any>::recycle(execution& what) {
  what.reset();
  free_.push_back(&what);
}

template <class Any>
void basic_data_plane<Any>::push(execution& what) {
  what.prepare();
  protocol::start_queue::item item;
  item.set = what.here->set;
  item.log_count = what.log_count;
  item.exchanges = what.exchanges();
  item.later_parts = what.later_parts();
  item.reference = what.known ? what.rows->log_count : 0;
  queue_.push(item);
  waiting_.push_back(&what);
}

template <class Any>
void basic_data_plane<Any>::run() noexcept {
  if (running_ || state_ == nullptr) return;
  running_ = true;
  while (!waiting_.empty() && queue_.ready()) {
    execution& next = *waiting_.front();
    if (next.log_count > holds_behind_) break;
    // Whoever is oldest on all ranks starts, so a rank that holds others back stops nobody.
    next.load_ = next.load();
    if (bytes_under_way_ != 0 && next.load_ != 0 &&
        bytes_under_way_ + next.load_ > options_.bytes_in_flight) {
      break;
    }
    waiting_.pop_front();
    ++under_way_;
    bytes_under_way_ += next.load_;
    try {
      const auto started = queue_.next();
      next.start(started.slot);
      if (next.calls_.size() > 1 && next.next_call_ == next.calls_.size()) {
        queue_.posted_last(next.here->set, started.slot);
      }
    } catch (const std::system_error& problem) {
      next.broke(problem.code());
    } catch (...) {
      next.broke(std::make_error_code(std::errc::not_enough_memory));
    }
    next.settle();
  }
  running_ = false;
}

template <class Any>
void basic_data_plane<Any>::done(execution& what) {
  --under_way_;
  bytes_under_way_ -= what.load_;
  what.watched_.end();
  if (what.failed_) {
    owner_.data_failed(what, what.failed_);
  } else {
    owner_.data_done(what);
  }
  recycle(what);
}

template <class Any>
void basic_data_plane<Any>::post_no_more(std::error_code why) noexcept {
  for (const auto& one : all_) {
    if (!one->started_ || one->failed_) continue;
    if (one->next_call_ < one->calls_.size() || (one->exchanges() && !one->exchanged_)) {
      one->broke(why);
    }
  }
}

template <class Any>
template <class Visit>
void basic_data_plane<Any>::give_up(bool all, bool devices, Visit visit) {
  std::size_t found = 0;
  for (const auto& one : all_) {
    if (!one->started_ || (one->device_has_it_ ? !devices : !all && one->borrows())) continue;
    ++found;
    one->given_up_ = true;
    if (one->creation_) one->creation_->leave();
    one->started_ = false;
    one->watched_.end();
    --under_way_;
    bytes_under_way_ -= one->load_;
    visit(*one);
  }
  if (found == 0) return;
  const auto is_given_up = [this](const comm::request_operation& op) {
    const execution* owner = static_cast<const lane&>(op).owner_;
    return owner != nullptr && &owner->plane_ == this && owner->given_up_;
  };
  // A backend that can forget a call touches its memory no more; the lane is nobody's then.
  std::erase_if(with_backend_, [&](lane* each) {
    if (!is_given_up(*each) || !backend_->forget(*each)) return false;
    delete each;
    return true;
  });
  std::erase_if(with_device_, [&](lane* each) {
    if (!is_given_up(*each) || !device_->forget(*each)) return false;
    delete each;
    return true;
  });
  state_->source.leave_to_mpi(&lane::advanced, [&](comm::request_operation& op) {
    if (!is_given_up(op)) return false;
    try {
      given_up_.push_back(static_cast<lane*>(&op));  // for tools that look for leaks
    } catch (...) {
    }
    return true;
  });
}

template <class Any>
template <class Visit>
void basic_data_plane<Any>::drop_waiting(Visit visit) {
  while (!waiting_.empty()) {
    execution& one = *waiting_.front();
    waiting_.pop_front();
    visit(one);
    recycle(one);
  }
}

}  // namespace cohort::coordination

#include <cohort/coordinator/data/device_path.ipp>
