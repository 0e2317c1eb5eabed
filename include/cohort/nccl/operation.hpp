// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How a verb on device memory is made: a request that says what to call and what it touches, one
/// `initiate`, and the operation with its handler.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/core/asio.hpp>
#include <cohort/device/span.hpp>
#include <cohort/device/vector.hpp>
#include <cohort/nccl/communicator.hpp>
#include <cohort/nccl/types.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/operation.hpp>

#include <algorithm>
#include <concepts>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::nccl {

namespace detail {

template <class B>
inline constexpr bool is_device_buffer = false;
template <class T>
inline constexpr bool is_device_buffer<device::vector<T>> = true;
template <class T>
inline constexpr bool is_device_buffer<device::span<T>> = true;

template <class B>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<device::vector<T>> = true;

}  // namespace detail

/// What a verb takes: a device::vector or a device::span. A vector that is moved in belongs to the
/// operation and comes back in the result; one that is passed by name may go before the operation
/// has ended, for its memory stays until then. What a span shows must outlive the operation.
template <class B>
concept device_buffer = detail::is_device_buffer<std::remove_cvref_t<B>>;

/// One that can be written.
template <class B>
concept writable_buffer =
    device_buffer<B> &&
    !std::is_const_v<std::remove_pointer_t<decltype(std::declval<B&>().data())>>;

template <device_buffer B>
using element_of = typename std::remove_cvref_t<B>::value_type;

/// Given to a verb in place of a token: it starts nothing and returns its request, for
/// \ref set_group.
struct in_group_t {};
inline constexpr in_group_t in_group{};

/// What a verb hands in.
struct request {
  request() {}

  std::shared_ptr<communicator_state> comm;
  const char* verb = "";
  until ends = until::complete;
  call one;
  std::vector<call> more;
  std::vector<buffer_use> uses;
  std::optional<device::stream> user;
  std::size_t bytes = 0;
  errc bad{};                  // misuse that the verb itself has seen
  std::string facts;           // of it
  bool everybody = true;       // all ranks start it, in one order
  std::vector<request> parts;  // if it is made of several, each on a device of its own
  /// Two uses that may be the same memory, or that must not overlap.
  bool may_be_in_place = false;
  bool never_in_place = false;        // of a group with one input and one output
  const void* in_place_at = nullptr;  // where the input must be then, if not where the output is

  void refuse(errc why, std::string what) {
    if (bad != errc{}) return;
    bad = why;
    facts = std::move(what);
  }
};

namespace detail {

/// For the overloads that say why a call does not compile.
template <class Op, class B>
concept misfit = !device_buffer<Op> && !reduction_of<Op, element_of<B>>;

template <class Op, class B>
asio::awaitable<void> no_reduction() {
  static_assert(
      !misfit<Op, B>,
      "NCCL has no such reduction: it sums, averages, multiplies and compares integers of "
      "1, 4 and 8 bytes and floating point of 2, 4 and 8; complex numbers have sum and "
      "average; there is no bool, no integer of 2 bytes, and no bitwise operation");
  return {};
}

template <device_buffer B>
buffer_use use_of(const char* field, B& buffer) {
  buffer_use use{field, buffer.data(), buffer.bytes(), buffer.device(), {}, nullptr};
  if constexpr (is_vector<std::remove_cvref_t<B>>) {
    if (buffer.device() >= 0) use.producer = buffer.producer();
    use.lease = buffer.lease();
  } else if (buffer.producer() != nullptr) {
    try {
      use.producer = device::stream::borrow(buffer.producer(), buffer.device());
    } catch (const std::system_error& failed) {  // the operation ends with it
      use.unusable = failed.code();
    }
  }
  return use;
}

/// A moved-in vector as part of the result, or nothing.
template <class B>
using owned =
    std::conditional_t<is_vector<std::remove_cvref_t<B>> && !std::is_lvalue_reference_v<B>,
                       std::tuple<std::remove_cvref_t<B>>, std::tuple<>>;
template <class B>
owned<B> take([[maybe_unused]] std::remove_reference_t<B>& buffer) {
  if constexpr (std::tuple_size_v<owned<B>> == 0) {
    return {};
  } else {
    return owned<B>(std::move(buffer));
  }
}

template <class Owned>
struct signature_with;
template <class... Vectors>
struct signature_with<std::tuple<Vectors...>> {
  using type = void(std::error_code, Vectors...);
};
template <class... Buffers>
using all_owned = decltype(std::tuple_cat(std::declval<owned<Buffers>>()...));
template <class... Buffers>
using signature_for = typename signature_with<all_owned<Buffers...>>::type;

/// What may follow the arguments of a verb: nothing, `until`, a token, or both.
template <class Signature, class... Tail>
inline constexpr bool is_tail = sizeof...(Tail) == 0;
template <class Signature, class Last>
inline constexpr bool is_tail<Signature, Last> =
    std::is_same_v<std::remove_cvref_t<Last>, until> ||
    std::is_same_v<std::remove_cvref_t<Last>, in_group_t> || completion_token_for<Last, Signature>;
template <class Signature, class Ends, class Token>
inline constexpr bool is_tail<Signature, Ends, Token> =
    std::is_same_v<std::remove_cvref_t<Ends>, until> && completion_token_for<Token, Signature>;

template <class Signature, class... Tail>
concept tail_for = is_tail<Signature, Tail...>;

/// Checks what this rank can see, and marks the streams. Returns what is wrong, and says it.
std::error_code prepare(work& op, const request& asked);

struct start_work {
  template <class Handler, class Owned>
  void operator()(Handler&& handler, request&& asked, Owned&& owned) const;
};

template <class Signature, class Owned, class Token>
auto start(request&& asked, Owned&& owned, Token& token) {
  return asio::async_initiate<Token, Signature>(start_work{}, token, std::move(asked),
                                                std::forward<Owned>(owned));
}

template <class Signature, class Owned>
auto initiate(request&& asked, Owned&& owned) {
  default_token token;
  return start<Signature>(std::move(asked), std::forward<Owned>(owned), token);
}
template <class Signature, class Owned, class Last>
auto initiate(request&& asked, Owned&& owned, Last&& last) {
  if constexpr (std::is_same_v<std::remove_cvref_t<Last>, until>) {
    asked.ends = last;
    return initiate<Signature>(std::move(asked), std::forward<Owned>(owned));
  } else if constexpr (std::is_same_v<std::remove_cvref_t<Last>, in_group_t>) {
    static_assert(std::tuple_size_v<std::remove_cvref_t<Owned>> == 0,
                  "a vector that is moved in cannot be part of a group: pass it by name");
    return request(std::move(asked));
  } else {
    return start<Signature>(std::move(asked), std::forward<Owned>(owned), last);
  }
}
template <class Signature, class Owned, class Token>
auto initiate(request&& asked, Owned&& owned, until ends, Token&& token) {
  asked.ends = ends;
  return start<Signature>(std::move(asked), std::forward<Owned>(owned), token);
}

/// The same for a verb with one buffer.
template <class B, class... Tail>
auto initiate_one(request&& asked, const char* field, std::remove_reference_t<B>& buffer,
                  Tail&&... tail) {
  asked.bytes = buffer.bytes();
  asked.uses.push_back(use_of(field, buffer));
  return initiate<signature_for<B>>(std::move(asked), take<B>(buffer), std::forward<Tail>(tail)...);
}
/// The same for a verb with an input and an output; the vectors that were moved in come back.
template <class In, class Out, class... Tail>
auto initiate_with(request&& asked, std::remove_reference_t<In>& in,
                   std::remove_reference_t<Out>& out, Tail&&... tail) {
  return initiate<signature_for<In, Out>>(
      std::move(asked), std::tuple_cat(take<In>(in), take<Out>(out)), std::forward<Tail>(tail)...);
}
/// The same where each rank reads the one and writes the other.
template <class In, class Out, class... Tail>
auto initiate_both(request&& asked, std::remove_reference_t<In>& in,
                   std::remove_reference_t<Out>& out, Tail&&... tail) {
  asked.one.from = in.data();
  asked.one.to = out.data();
  asked.bytes = in.bytes();
  asked.uses.push_back(use_of("in", in));
  asked.uses.push_back(use_of("out", out));
  return initiate_with<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// The request of a verb, but for its buffers.
inline request request_for(const std::shared_ptr<communicator_state>& comm,
                           const device::stream& on, const char* verb, op_kind what, int root = 0) {
  request made;
  made.comm = comm;
  made.verb = verb;
  made.user = on;
  made.one.what = what;
  made.one.root = root;
  if (made.comm && (root < 0 || root >= made.comm->size)) {
    const bool message = what == op_kind::send || what == op_kind::recv;
    made.refuse(message ? errc::bad_rank : errc::bad_root,
                (message ? "peer=" : "root=") + std::to_string(root) +
                    ", ranks=" + std::to_string(made.comm->size));
  }
  return made;
}

/// The number of ranks, or 1 for an empty handle, which is refused later.
[[nodiscard]] inline std::size_t ranks_of(const request& asked) noexcept {
  return asked.comm ? static_cast<std::size_t>(asked.comm->size) : 1;
}
[[nodiscard]] inline std::size_t rank_of(const request& asked) noexcept {
  return asked.comm ? static_cast<std::size_t>(asked.comm->rank) : 0;
}

/// Gives the call its elements: `count` of T each.
inline void count_as(request& asked, element as, std::size_t count, std::size_t size) {
  asked.one.type = as.type;
  asked.one.count = count * as.width;
  asked.one.width = as.width == 0 ? 1 : size / as.width;
}

inline void check_sizes(request& asked, const char* field, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  asked.refuse(errc::size_mismatch, std::string(field) + "=" + std::to_string(found) +
                                        " elements, expected=" + std::to_string(wanted));
}

}  // namespace detail
}  // namespace cohort::nccl

namespace cohort::nccl::detail {

// See queue/operation.ipp.
std::error_code prepare(work& op, const request& asked);
void fill(work& op, request& asked);
bool borrows_memory(const std::vector<buffer_use>& uses);
/// Makes the parts of an operation and checks each. Returns what is wrong, and says it.
std::error_code join(work& whole, std::vector<request>& parts);

template <class Handler, class Owned>
class typed_work final
    : public progress::handler_operation<typed_work<Handler, Owned>, Handler, work> {
 public:
  typed_work(Handler& handler, Owned&& owned)
      : typed_work::handler_operation(handler), owned_(std::move(owned)) {}

  /// After that the operation may be gone.
  void start(request&& asked) {
    fill(*this, asked);
    const auto borrows_any = [](const request& part) { return borrows_memory(part.uses); };
    this->connect(owner(), borrows_memory(this->uses) ||
                               std::any_of(asked.parts.begin(), asked.parts.end(), borrows_any));
    try {
      const bool has_parts = !asked.parts.empty();
      const std::error_code bad = has_parts ? join(*this, asked.parts) : prepare(*this, asked);
      if (bad) this->fail(bad);
    } catch (const std::bad_alloc&) {
      this->fail(std::make_error_code(std::errc::not_enough_memory));
    }
    if (tools::watched()) {
      this->watched.begin(tools::category::verb, tools::literal(this->verb), this->bytes);
    }
    this->comm->source.submit(*this);
  }

  [[nodiscard]] progress::engine& owner() const { return this->comm->source.engine(); }
  /// The peers count on it, so it cannot be withdrawn. A deadline is reported.
  void cancel(asio::cancellation_type) {
    if (progress::emitting_deadline()) this->comm->source.questions().deadline_passed(*this);
  }
  [[nodiscard]] auto outcome(bool dropped) {
    if (dropped) this->fail(asio::error::operation_aborted);
    return [owned = std::move(owned_), why = this->error()](Handler&& handler) mutable {
      std::apply([&](auto&... vectors) { std::move(handler)(why, std::move(vectors)...); }, owned);
    };
  }

 private:
  Owned owned_;
};

template <class Handler, class Owned>
void start_work::operator()(Handler&& handler, request&& asked, Owned&& owned) const {
  using handler_type = std::decay_t<Handler>;
  using owned_type = std::decay_t<Owned>;
  if (!asked.comm) {
    progress::post_without_engine(
        std::forward<Handler>(handler),
        [back = owned_type(std::forward<Owned>(owned))](handler_type&& mine) mutable {
          const std::error_code none = errc::invalid_communicator;
          std::apply([&](auto&... vectors) { std::move(mine)(none, std::move(vectors)...); }, back);
        });
    return;
  }
  handler_type mine(std::forward<Handler>(handler));
  owned_type back(std::forward<Owned>(owned));
  typed_work<handler_type, owned_type>::make(mine, std::move(back))->start(std::move(asked));
}

}  // namespace cohort::nccl::detail

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/nccl/queue/operation.ipp>
#endif

#endif
