// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `cluster/function.hpp`: what may be a remote function, and its messages.

#include <cohort/core/copy.hpp>

#include <cstring>
#include <memory>
#include <tuple>

namespace cohort::cluster {

namespace detail {

template <class... T>
struct types {
  static constexpr std::size_t size = sizeof...(T);
};

// --- The signature of a function or lambda ------------------------------------------------------

/// Primary: not something that can be called in one way.
template <class Function>
struct signature {
  static constexpr bool known = false;
  using result = void;
  using parameters = types<>;
};

template <class Result, class... Parameters>
struct signature<Result(Parameters...)> {
  static constexpr bool known = true;
  using result = Result;
  using parameters = types<Parameters...>;
};
template <class Result, class... Parameters>
struct signature<Result(Parameters...) noexcept> : signature<Result(Parameters...)> {};
template <class Result, class Class, class... Parameters>
struct signature<Result (Class::*)(Parameters...) const> : signature<Result(Parameters...)> {};
template <class Result, class Class, class... Parameters>
struct signature<Result (Class::*)(Parameters...) const noexcept>
    : signature<Result(Parameters...)> {};

template <class Callee>
struct signature_of : signature<std::remove_pointer_t<Callee>> {};
template <class Callee>
  requires(std::is_empty_v<Callee> && requires { &Callee::operator(); })
struct signature_of<Callee> : signature<decltype(&Callee::operator())> {};

// --- The call_context in front ------------------------------------------------------------------

template <class Parameters>
struct without_context {
  static constexpr bool there = false;
  using parameters = Parameters;
};
template <class... Parameters>
struct without_context<types<call_context&, Parameters...>> {
  static constexpr bool there = true;
  using parameters = types<Parameters...>;
};
template <class... Parameters>
struct without_context<types<const call_context&, Parameters...>>
    : without_context<types<call_context&, Parameters...>> {};

// --- Results ------------------------------------------------------------------------------------

template <class Result>
struct awaited {
  static constexpr bool is_coroutine = false;
  using type = Result;
};
template <class Result>
struct awaited<asio::awaitable<Result>> {
  static constexpr bool is_coroutine = true;
  using type = Result;
};

template <class T>
inline constexpr bool is_span = false;
template <class T, std::size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;

template <class T>
inline constexpr bool is_pointer_like =
    std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T>;

template <class Result>
inline constexpr bool good_result =
    !std::is_reference_v<Result> && !is_pointer_like<std::remove_cv_t<Result>> &&
    !is_span<std::remove_cv_t<Result>> &&
    !std::is_same_v<std::remove_cv_t<Result>, std::string_view>;

// --- Parameters ---------------------------------------------------------------------------------

enum class problem { none, changes, pointer, changing_span, span_elements };

template <class Parameter>
struct parameter_problem {
  static constexpr problem value =
      std::is_lvalue_reference_v<Parameter> && !std::is_const_v<std::remove_reference_t<Parameter>>
          ? problem::changes
      : is_pointer_like<std::remove_cvref_t<Parameter>> ? problem::pointer
                                                        : problem::none;
};
template <class Parameter, class T, std::size_t N>
constexpr problem span_problem(std::type_identity<std::span<T, N>>) noexcept {
  if (std::is_lvalue_reference_v<Parameter> &&
      !std::is_const_v<std::remove_reference_t<Parameter>>) {
    return problem::changes;
  }
  if (!std::is_const_v<T>) return problem::changing_span;
  const bool good = std::is_trivially_copyable_v<T> && !is_pointer_like<std::remove_cv_t<T>>;
  return good ? problem::none : problem::span_elements;
}
template <class Parameter>
  requires is_span<std::remove_cvref_t<Parameter>>
struct parameter_problem<Parameter> {
  static constexpr problem value =
      span_problem<Parameter>(std::type_identity<std::remove_cvref_t<Parameter>>());
};

template <class... Parameters>
constexpr bool none_has([[maybe_unused]] problem which, types<Parameters...>) noexcept {
  return ((parameter_problem<Parameters>::value != which) && ...);
}

/// The facts about F, and a sentence from the compiler for each rule that it breaks.
template <auto F>
struct checked {
  using type = std::remove_cv_t<decltype(F)>;
  using found = signature_of<type>;
  using context = without_context<typename found::parameters>;
  using parameters = typename context::parameters;
  using result = typename awaited<typename found::result>::type;
  static constexpr bool is_coroutine = awaited<typename found::result>::is_coroutine;
  static constexpr bool takes_context = context::there;
  static constexpr std::size_t arity = parameters::size;

  static constexpr bool changes_nothing = none_has(problem::changes, parameters());
  static constexpr bool no_pointer = none_has(problem::pointer, parameters());
  static constexpr bool no_changing_span = none_has(problem::changing_span, parameters());
  static constexpr bool good_elements = none_has(problem::span_elements, parameters());

  static_assert(found::known,
                "a remote function is a function or a captureless lambda, and no template");
  static_assert(changes_nothing,
                "a remote function cannot take T&, it would change a copy: return the new value");
  static_assert(no_pointer,
                "a remote function cannot take a pointer, it would point into another process");
  static_assert(no_changing_span,
                "a remote function cannot change the caller's elements: take std::span<const T>");
  static_assert(good_elements,
                "a remote function takes spans of trivially copyable elements: take std::vector");
  static_assert(good_result<result>,
                "a remote function cannot return a view, a reference or a pointer");

  static constexpr bool ok = found::known && changes_nothing && no_pointer && no_changing_span &&
                             good_elements && good_result<result>;
};

/// The bytes that bring a position to a multiple of the alignment, which is a power of two.
[[nodiscard]] constexpr std::size_t padding(std::size_t position, std::size_t alignment) noexcept {
  return (alignment - position % alignment) % alignment;
}

// --- Large values -------------------------------------------------------------------------------

/// The container in which a large value of this type travels by itself; void if there is none.
template <class T>
struct attached {
  using type = void;
};
template <class T, class Allocator>
  requires(wire::detail::copied_whole<T> &&
           std::allocator_traits<Allocator>::is_always_equal::value)
struct attached<std::vector<T, Allocator>> {
  using type = std::vector<T, Allocator>;
};
template <>
struct attached<std::string> {
  using type = std::string;
};
template <>
struct attached<std::string_view> {
  using type = std::string;
};
template <class T, std::size_t N>
  requires(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T> &&
           !std::is_same_v<T, bool>)
struct attached<std::span<const T, N>> {
  using type = std::vector<T>;
};

/// Attaches it if it is large, and says whether it has. What can be moved is.
template <class Container, class Value>
[[nodiscard]] bool attach(payload& out, Value&& value) {
  const std::span elements(std::as_const(value));
  const bool large = elements.size_bytes() >= attachment_size;
  if (!large || out.attachments.size() == attachment_limit) return false;
  wire::writer(out.bytes).varint(value.size());
  if constexpr (std::is_same_v<Value, Container>) {
    out.attachments.push_back(attachment_of<Container>::sent(std::move(value)));
  } else {
    out.attachments.push_back(attachment_of<Container>::copy(elements));
  }
  return true;
}

/// The attachments of what is read, in the order of its bytes.
struct attachments_left {
  const std::vector<attachment_ptr>& all;
  std::size_t taken = 0;

  /// That of the next value, or null if the value is not attached.
  template <class Container>
  [[nodiscard]] std::shared_ptr<attachment_of<Container>> next(wire::reader& in) {
    constexpr std::size_t size = sizeof(typename Container::value_type);
    wire::reader ahead = in;
    const std::uint64_t count = ahead.varint();
    const bool large = ahead.ok() && count >= (attachment_size + size - 1) / size;
    if (!large || taken == attachment_limit) return nullptr;
    in = ahead;
    if (taken == all.size()) return in.fail(wire_errc::too_long), nullptr;
    auto found = std::dynamic_pointer_cast<attachment_of<Container>>(all[taken++]);
    if (!found || found->values.size() != count) return in.fail(wire_errc::bad_value), nullptr;
    return found;
  }
};

// --- The caller's side --------------------------------------------------------------------------

/// A span is the number of its elements, zeros up to their alignment, and their bytes.
template <class T, std::size_t N>
void put_span(wire::writer& out, std::span<const T, N> values) {
  out.varint(values.size());
  for (std::size_t left = padding(out.size(), alignof(T)); left > 0; --left) out.byte(0);
  out.raw(std::as_bytes(values));
}

template <class Parameter, class Argument>
void put_argument(payload& to, Argument&& argument) {
  using stored = std::remove_cvref_t<Parameter>;
  using container = typename attached<stored>::type;
  constexpr bool same = std::is_same_v<std::remove_cvref_t<Argument>, stored>;
  constexpr bool converts = same || std::is_convertible_v<Argument, stored>;
  static_assert(converts, "an argument of the call does not convert to the function's parameter");
  wire::writer out(to.bytes);
  if constexpr (!converts) {
    return;
  } else if constexpr (std::is_same_v<Argument, container>) {  // an rvalue, of what may be a view
    if (attach<container>(to, std::move(argument))) return;
    const container& kept = argument;
    put_argument<Parameter>(to, kept);
  } else if constexpr (is_span<stored>) {
    const auto values = static_cast<stored>(argument);
    if constexpr (!std::is_void_v<container>) {
      if (attach<container>(to, values)) return;
    }
    put_span(out, values);
  } else if constexpr (std::is_same_v<stored, std::string_view>) {
    const auto text = static_cast<std::string_view>(argument);
    if (!attach<container>(to, text)) out.text(text);
  } else if constexpr (same) {
    if constexpr (!std::is_void_v<container>) {
      if (attach<container>(to, std::as_const(argument))) return;
    }
    out.put(std::as_const(argument));  // also of what cannot be copied
  } else {
    put_argument<Parameter>(to, static_cast<stored>(std::forward<Argument>(argument)));
  }
}

template <class... Parameters, class... Args>
void put_arguments(payload& out, types<Parameters...>, Args&&... arguments) {
  (put_argument<Parameters>(out, std::forward<Args>(arguments)), ...);
}

/// The bytes that an argument will take among others; a guess.
template <class Argument>
[[nodiscard]] std::size_t inner_size(const Argument& argument) noexcept {
  if constexpr (requires { std::as_bytes(std::span(argument)); }) {
    const std::size_t size = std::span(argument).size_bytes();
    return size < attachment_size ? size : 0;
  } else {
    return 0;
  }
}

// --- The callee's side --------------------------------------------------------------------------

/// Where one argument waits for the callee: a value,
template <class Parameter, class Stored = std::remove_cvref_t<Parameter>>
struct slot {
  Stored value{};

  void read(wire::reader& in, std::size_t, attachments_left&) { in.get(value); }
  [[nodiscard]] auto&& pass() noexcept {
    if constexpr (std::is_lvalue_reference_v<Parameter>) {
      return std::as_const(value);
    } else {
      return std::move(value);
    }
  }
};

/// or one that may be attached,
template <class Parameter, class Stored>
  requires std::is_same_v<typename attached<Stored>::type, Stored>
struct slot<Parameter, Stored> {
  Stored value;
  std::shared_ptr<attachment_of<Stored>> apart;

  void read(wire::reader& in, std::size_t, attachments_left& others) {
    apart = others.next<Stored>(in);
    if (!apart) in.get(value);
  }
  [[nodiscard]] auto&& pass() noexcept {
    Stored& here = apart ? apart->values : value;
    if constexpr (std::is_lvalue_reference_v<Parameter>) {
      return std::as_const(here);
    } else {
      return std::move(here);
    }
  }
};

/// or a text in the message,
template <class Parameter>
struct slot<Parameter, std::string_view> {
  std::string_view value;

  void read(wire::reader& in, std::size_t, attachments_left& others) {
    const auto apart = others.next<std::string>(in);
    value = apart ? std::string_view(apart->values) : in.text();
  }
  [[nodiscard]] std::string_view& pass() noexcept { return value; }
};

/// or elements in the message, copied only if they are not aligned there. That happens if the
/// message itself is less aligned than memory from operator new.
template <class Parameter, class T, std::size_t N>
struct slot<Parameter, std::span<const T, N>> {
  struct release {
    void operator()(std::byte* memory) const noexcept {
      ::operator delete(memory, std::align_val_t(alignof(T)));
    }
  };

  const T* data = nullptr;
  std::size_t size = 0;
  std::unique_ptr<std::byte, release> copy;

  void read(wire::reader& in, std::size_t message_size, attachments_left& others) {
    if constexpr (!std::is_void_v<typename attached<std::span<const T, N>>::type>) {
      if (const auto apart = others.next<std::vector<T>>(in)) {
        data = apart->values.data();
        size = apart->values.size();
        if (N != std::dynamic_extent && size != N) in.fail(wire_errc::bad_value);
        return;
      }
    }
    size = in.count(sizeof(T));
    if (N != std::dynamic_extent && in.ok() && size != N) in.fail(wire_errc::bad_value);
    static_cast<void>(in.raw(padding(message_size - in.left(), alignof(T))));
    const auto bytes = in.raw(size * sizeof(T));
    if (!in.ok()) return;
    const std::byte* from = bytes.data();
    if (reinterpret_cast<std::uintptr_t>(from) % alignof(T) != 0) {  // NOLINT
      copy.reset(
          static_cast<std::byte*>(::operator new(bytes.size() + 1, std::align_val_t(alignof(T)))));
      copy_bytes(copy.get(), from, bytes.size());
      from = copy.get();
    }
    data = reinterpret_cast<const T*>(from);  // NOLINT: bytes of a T, of the same program
  }
  [[nodiscard]] std::span<const T, N> pass() const noexcept {
    return std::span<const T, N>(data, size);
  }
};

template <class Parameters>
struct slots;
template <class... Parameters>
struct slots<types<Parameters...>> {
  std::tuple<slot<Parameters>...> all;

  /// Throws cohort::error if the message is not exactly these arguments. Views are of it.
  void read(std::span<const std::byte> message, const std::vector<attachment_ptr>& attachments,
            std::string_view name) {
    wire::reader in(message);
    attachments_left others{attachments};
    std::size_t position = 0;
    const auto one = [&](auto& next) {
      if (!in.ok()) return;
      ++position;
      next.read(in, message.size(), others);
    };
    std::apply([&one](auto&... each) { (one(each), ...); }, all);
    std::string text = "call of ";
    if (!in.ok()) {
      text.append(name).append(", argument ").append(std::to_string(position));
      throw error(in.error(), text.append(" of ").append(std::to_string(sizeof...(Parameters))));
    }
    if (in.left() != 0 || others.taken != attachments.size()) {
      text.append(name).append(", behind its ").append(std::to_string(sizeof...(Parameters)));
      throw error(make_error_code(wire_errc::trailing), text.append(" arguments"));
    }
  }
};

template <auto F>
[[nodiscard]] decltype(auto) invoke(call_context& context,
                                    slots<typename checked<F>::parameters>& arguments) {
  return std::apply(
      [&context](auto&... each) -> decltype(auto) {
        if constexpr (checked<F>::takes_context) {
          return F(context, each.pass()...);
        } else {
          static_cast<void>(context);
          return F(each.pass()...);
        }
      },
      arguments.all);
}

}  // namespace detail

template <auto F, class... Args>
payload encode_arguments(Args&&... arguments) {
  payload out;
  if constexpr (detail::checked<F>::ok) {
    constexpr bool fits = sizeof...(Args) == detail::checked<F>::arity;
    static_assert(fits, "the call has not as many arguments as the remote function has parameters");
    if constexpr (fits) {
      // There is room for what a call adds.
      out.bytes.reserve((detail::inner_size(arguments) + ... + 64));
      detail::put_arguments(out, typename detail::checked<F>::parameters(),
                            std::forward<Args>(arguments)...);
    }
  }
  return out;
}

namespace detail {

template <class R>
[[nodiscard]] payload encode_result(R result) {
  payload out;
  put_argument<R>(out, std::move(result));
  return out;
}

}  // namespace detail

template <auto F>
payload run_now(call_context& context, payload arguments) {
  if constexpr (!detail::checked<F>::ok) {
    return payload();
  } else {
    static_assert(!detail::checked<F>::is_coroutine, "a coroutine is awaited: use run<F>");
    detail::slots<typename detail::checked<F>::parameters> stored;
    stored.read(arguments.bytes, arguments.attachments, function_name<F>());
    if constexpr (std::is_void_v<typename detail::checked<F>::result>) {
      detail::invoke<F>(context, stored);
      return payload();
    } else {
      return detail::encode_result<std::remove_cv_t<typename detail::checked<F>::result>>(
          detail::invoke<F>(context, stored));
    }
  }
}

template <auto F>
asio::awaitable<payload> run(call_context& context, payload arguments) {
  if constexpr (!detail::checked<F>::ok) {
    co_return payload();
  } else {
    static_assert(detail::checked<F>::is_coroutine, "no coroutine is called: use run_now<F>");
    detail::slots<typename detail::checked<F>::parameters> stored;
    stored.read(arguments.bytes, arguments.attachments, function_name<F>());
    if constexpr (std::is_void_v<typename detail::checked<F>::result>) {
      co_await detail::invoke<F>(context, stored);
      co_return payload();
    } else {
      auto result = co_await detail::invoke<F>(context, stored);
      co_return detail::encode_result<std::remove_cv_t<typename detail::checked<F>::result>>(
          std::move(result));
    }
  }
}

template <class R>
R decode_result(payload result, std::string_view name) {
  wire::reader in(result.bytes);
  detail::attachments_left from{result.attachments};
  const auto check = [&] {
    const bool all = in.left() == 0 && from.taken == result.attachments.size();
    if (in.ok() && !all) in.fail(wire_errc::trailing);
    if (!in.ok()) throw error(in.error(), std::string("result of ").append(name));
  };
  if constexpr (std::is_void_v<R>) {
    check();
  } else {
    detail::slot<std::remove_cv_t<R>> value;
    value.read(in, 0, from);
    check();
    return value.pass();
  }
}

}  // namespace cohort::cluster
