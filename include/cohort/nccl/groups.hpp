// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// What is posted by one call: messages between devices, and operations on several devices of a
/// process.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/operation.hpp>
#include <cohort/nccl/types.hpp>

#include <algorithm>
#include <concepts>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::nccl {

namespace detail {

/// What is received must not lie in what else the group reads or writes: NCCL moves all of it at
/// once. Sends may share their memory.
inline void refuse_overlap(request& asked) {
  struct stretch {
    const std::byte* begin;
    const std::byte* end;
    bool is_written;
    std::size_t which;
  };
  std::vector<stretch> all;
  for (std::size_t i = 0; i < asked.uses.size(); ++i) {
    const buffer_use& use = asked.uses[i];
    const auto* const begin = static_cast<const std::byte*>(use.data);
    const bool is_written = asked.more[i].what == op_kind::recv;
    if (use.bytes != 0) all.push_back({begin, begin + use.bytes, is_written, i});
  }
  std::sort(all.begin(), all.end(),
            [](const stretch& a, const stretch& b) { return a.begin < b.begin; });
  // Among the ranges before: the one that ends last, and the written one that ends last.
  const stretch* furthest = nullptr;
  const stretch* written = nullptr;
  for (const stretch& one : all) {
    const stretch* const other = one.is_written ? furthest : written;
    if (other != nullptr && one.begin < other->end) {
      const auto name = [&](const stretch& each) {
        return std::string(each.is_written ? "recv" : "send") + " " + std::to_string(each.which);
      };
      const bool in_order = other->which < one.which;
      asked.refuse(errc::invalid_argument, name(in_order ? *other : one) + " and " +
                                               name(in_order ? one : *other) +
                                               " overlap in memory");
      return;
    }
    if (furthest == nullptr || furthest->end < one.end) furthest = &one;
    if (one.is_written && (written == nullptr || written->end < one.end)) written = &one;
  }
}

}  // namespace detail

/// Several messages that are posted together, so that their order among the ranks does not matter.
///
/// `co_await nccl::group(gpus, stream).send(a, 1).recv(b, 1).run();` A message of nothing is left
/// out, so it must be of nothing on both sides. Buffers are borrowed; a device::vector may go
/// before the group has ended. Several messages from one rank to another are matched in the order
/// of the calls. What is received must not overlap with any other buffer of the group:
/// errc::invalid_argument, which names both by their place in it.
class group {
 public:
  group(const communicator& comm, const device::stream& on)
      : asked_(detail::request_for(comm.state(), on, "group", op_kind::barrier)) {
    asked_.everybody = false;
  }

  template <device_buffer B>
  group& send(B&& buffer, int to) & {
    add(op_kind::send, buffer, to);
    return *this;
  }
  template <writable_buffer B>
  group& recv(B&& buffer, int from) & {
    add(op_kind::recv, buffer, from);
    return *this;
  }
  template <device_buffer B>
  group&& send(B&& buffer, int to) && {
    add(op_kind::send, buffer, to);
    return std::move(*this);
  }
  template <writable_buffer B>
  group&& recv(B&& buffer, int from) && {
    add(op_kind::recv, buffer, from);
    return std::move(*this);
  }

  /// Posts them, once. Takes what every verb takes at its end.
  template <class... Tail>
    requires detail::tail_for<void(std::error_code), Tail...>
  auto run(Tail&&... tail) {
    request asked = std::move(asked_);
    detail::refuse_overlap(asked);
    // Nothing to post is an operation of nothing, not a barrier.
    if (asked.more.empty()) asked.one.what = op_kind::send;
    return detail::initiate<void(std::error_code)>(std::move(asked), std::tuple<>(),
                                                   std::forward<Tail>(tail)...);
  }

 private:
  template <class B>
  void add(op_kind what, B& buffer, int peer) {
    using T = element_of<B>;
    request one = detail::request_for(asked_.comm, *asked_.user, "group", what, peer);
    if (one.bad != errc{}) asked_.refuse(one.bad, one.facts);
    detail::count_as(one, moved_as<T>(), buffer.size(), sizeof(T));
    if (what == op_kind::send) {
      one.one.from = buffer.data();
    } else {
      // A group writes no output.
      one.one.to = const_cast<void*>(static_cast<const void*>(buffer.data()));
    }
    asked_.more.push_back(one.one);
    asked_.bytes += buffer.bytes();
    asked_.uses.push_back(detail::use_of(what == op_kind::send ? "send" : "recv", buffer));
  }
  request asked_;
};

/// One operation for each of several devices, posted together and awaited as one.
///
/// `nccl::set_group both;`
/// `both.add(nccl::all_reduce(gpus[0], s0, g0, op::sum, nccl::in_group));`
/// `both.add(nccl::all_reduce(gpus[1], s1, g1, op::sum, nccl::in_group));`
/// `co_await both.run();`
///
/// Every verb takes `nccl::in_group` in place of a token, and so does `nccl::group::run`, for the
/// messages of one device. At most one operation for each device. They are posted when the queues
/// of all these devices have come to them, so other operations of one of these devices may wait for
/// another device. Buffers are borrowed; a device::vector may go before the group has ended.
///
/// *Completion* of `run`: `void(std::error_code)`, when all have ended, with the first error. If
/// one of them is refused, none is started: errc::invalid_argument for two on one device,
/// errc::invalid_communicator for an empty handle, or what the verb says. *Cancellation*, deadlines
/// and *errors* otherwise: as for a verb. *Source*: `ncclGroupStart`, `ncclGroupEnd`.
class set_group {
 public:
  set_group() {}

  set_group& add(request&& part) & {
    parts_.push_back(std::move(part));
    return *this;
  }
  set_group&& add(request&& part) && {
    parts_.push_back(std::move(part));
    return std::move(*this);
  }

  /// Posts them, once. Takes what every verb takes at its end, but for `in_group`.
  template <class... Tail>
    requires detail::tail_for<void(std::error_code), Tail...> &&
             (!std::same_as<std::remove_cvref_t<Tail>, in_group_t> && ...)
  auto run(Tail&&... tail) {
    request asked;
    asked.verb = "set_group";
    for (const request& part : parts_) {
      if (!asked.comm) asked.comm = part.comm;
    }
    asked.parts = std::move(parts_);
    return detail::initiate<void(std::error_code)>(std::move(asked), std::tuple<>(),
                                                   std::forward<Tail>(tail)...);
  }

 private:
  std::vector<request> parts_;
};

}  // namespace cohort::nccl

#endif
