// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// How a function runs as a task: what it is spawned with as bytes, and its parameters again.

#include <cohort/core/error.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/graph/function.hpp>
#include <cohort/graph/runtime/argument_bytes.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/task_context.hpp>
#include <cohort/graph/value.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::graph::runtime {

/// Reads what fills the parameters of a task, one after the other.
class filling {
 public:
  explicit filling(machine::running_task& what) noexcept : in(what.arguments), task_(what) {}

  [[nodiscard]] filled_by next() {
    std::uint8_t how = in.byte();
    if (how == version_follows) [[unlikely]] {
      static_cast<void>(in.text());
      how = in.byte();
    }
    if (how > static_cast<std::uint8_t>(filled_by::tasks)) in.fail(wire_errc::bad_value);
    if (!in.ok()) refuse();
    return static_cast<filled_by>(how);
  }
  /// The next dependency that has a value for a parameter.
  [[nodiscard]] machine::task_input& input() {
    while (at_ < task_.inputs.size() && task_.uses[at_] == machine::use_kind::after) ++at_;
    if (at_ == task_.inputs.size()) refuse();
    return task_.inputs[at_++];
  }
  [[noreturn]] void refuse() const {
    throw cohort::error(in.ok() ? make_error_code(wire_errc::bad_value) : in.error(),
                        "graph: the arguments of a task");
  }

  wire::reader in;

 private:
  machine::running_task& task_;
  std::size_t at_ = 0;
};

template <class T>
[[nodiscard]] T copy_of(const T& value) {
  if constexpr (std::is_copy_constructible_v<T>) {
    return value;
  } else {
    throw cohort::error(errc::not_supported, std::string("graph: a ")
                                                 .append(type_name<T>())
                                                 .append(" cannot be copied, and others hold it"));
  }
}

/// Where one parameter waits for the call: in a value of the graph, or here.
template <class Parameter, class Stored = std::remove_cvref_t<Parameter>>
class slot {
 public:
  void fill(filling& from) {
    switch (from.next()) {
      case filled_by::value:
        if constexpr (has_wire_format<Stored>() && std::default_initializable<Stored>) {
          own_.emplace();
          from.in.get(*own_);
        } else if constexpr (std::is_trivially_copyable_v<Stored>) {
          const auto bytes = from.in.raw(sizeof(Stored));
          if (!from.in.ok()) from.refuse();
          alignas(Stored) std::array<std::byte, sizeof(Stored)> copy;
          std::memcpy(copy.data(), bytes.data(), sizeof(Stored));
          own_.emplace(std::bit_cast<Stored>(copy));
        }
        if (!from.in.ok() || !own_) from.refuse();
        value_ = &*own_;
        moves_ = true;
        return;
      case filled_by::task: {
        machine::task_input& input = from.input();
        value_ = &value_in<Stored>(*input.what);
        moves_ = input.may_move;
        return;
      }
      case filled_by::tasks:
        if constexpr (is_vector<Stored>) return fill_with_all(from);
        from.refuse();
    }
  }

  [[nodiscard]] decltype(auto) pass() {
    if constexpr (std::is_lvalue_reference_v<Parameter>) {
      return std::as_const(*value_);
    } else if constexpr (std::is_rvalue_reference_v<Parameter>) {
      if (!moves_) value_ = &own_.emplace(copy_of(*value_));
      return std::move(*value_);
    } else {
      return moves_ ? Stored(std::move(*value_)) : Stored(copy_of(*value_));
    }
  }

 private:
  void fill_with_all(filling& from) {
    using element = typename Stored::value_type;
    own_.emplace();
    for (std::size_t left = from.in.varint(); left > 0; --left) {
      machine::task_input& input = from.input();
      element& one = value_in<element>(*input.what);
      own_->push_back(input.may_move ? element(std::move(one)) : element(copy_of(one)));
    }
    value_ = &*own_;
    moves_ = true;
  }

  std::optional<Stored> own_;
  Stored* value_ = nullptr;
  bool moves_ = false;
};

/// A text stands in the bytes.
template <class Parameter>
class slot<Parameter, std::string_view> {
 public:
  void fill(filling& from) {
    if (from.next() == filled_by::value) {
      text_ = from.in.text();
    } else {
      text_ = value_in<std::string>(*from.input().what);
    }
    if (!from.in.ok()) from.refuse();
  }
  [[nodiscard]] std::string_view& pass() noexcept { return text_; }

 private:
  std::string_view text_;
};

/// Values of many tasks, or elements of one, side by side.
template <class Parameter, class T>
class slot<Parameter, std::span<const T>> {
 public:
  void fill(filling& from) {
    switch (from.next()) {
      case filled_by::value:
        from.in.get(own_);
        break;
      case filled_by::task:
        view_ = value_in<std::vector<T>>(*from.input().what);
        return;
      case filled_by::tasks:
        for (std::size_t left = from.in.varint(); left > 0; --left) {
          own_.push_back(copy_of(value_in<T>(*from.input().what)));
        }
        break;
    }
    if (!from.in.ok()) from.refuse();
    view_ = own_;
  }
  [[nodiscard]] std::span<const T> pass() const noexcept { return view_; }

 private:
  std::vector<T> own_;
  std::span<const T> view_;
};

template <class Parameters>
class slots;
template <class... Parameters>
class slots<types<Parameters...>> {
 public:
  explicit slots(machine::running_task& what) {
    [[maybe_unused]] filling from(what);
    std::apply([&](auto&... each) { (each.fill(from), ...); }, all_);
  }
  template <auto F>
  [[nodiscard]] decltype(auto) call(task_context* context) {
    return std::apply(
        [context](auto&... each) -> decltype(auto) {
          if constexpr (function<F>::takes_context) {
            return F(*context, each.pass()...);
          } else {
            static_cast<void>(context);
            return F(each.pass()...);
          }
        },
        all_);
  }

 private:
  std::tuple<slot<Parameters>...> all_;
};

template <auto F>
using slots_of = slots<typename function<F>::parameters>;

template <auto F>
[[nodiscard]] machine::content_ptr value_of_call(slots_of<F>& inputs, task_context* context) {
  using result = typename function<F>::result;
  if constexpr (std::is_void_v<result>) {
    inputs.template call<F>(context);
    return make_value<nothing>();
  } else {
    return make_value<std::remove_cv_t<result>>(inputs.template call<F>(context));
  }
}

template <auto F>
machine::content_ptr run_function(call& what) {
  slots_of<F> inputs(what.task);
  if constexpr (function<F>::takes_context) {
    task_context context(what.scope, what.task.index);
    return value_of_call<F>(inputs, &context);
  } else {
    return value_of_call<F>(inputs, nullptr);
  }
}

/// The task is copied into the frame: its spans are valid until it has ended.
template <auto F>
asio::awaitable<machine::content_ptr> run_coroutine(open_scope* where, machine::running_task what) {
  using result = typename function<F>::result;
  slots_of<F> inputs(what);
  task_context context(*where, what.index);
  auto work = inputs.template call<F>(&context);
  if constexpr (std::is_void_v<result>) {
    co_await std::move(work);
    co_return make_value<nothing>();
  } else {
    auto value = co_await std::move(work);
    co_return make_value<std::remove_cv_t<result>>(std::move(value));
  }
}

template <auto F>
asio::awaitable<machine::content_ptr> start_coroutine(call& what) {
  return run_coroutine<F>(&what.scope, what.task);
}

template <auto F>
class prepared_function final : public prepared_call {
 public:
  explicit prepared_function(machine::running_task& what) : inputs_(what) {}
  [[nodiscard]] machine::content_ptr run() override { return value_of_call<F>(inputs_, nullptr); }

 private:
  slots_of<F> inputs_;
};

template <auto F>
std::unique_ptr<prepared_call> prepare_function(call& what) {
  return std::make_unique<prepared_function<F>>(what.task);
}

template <auto F>
using value_of_function = value_of<std::remove_cv_t<typename function<F>::result>>;

template <auto F>
function_identity identity_of(const std::string* version) {
  return version == nullptr ? function_identity::of<F>() : function_identity::of<F>(*version);
}

template <auto F>
const task_code& code_of() {
  static constexpr task_code code = [] {
    task_code ways;
    if constexpr (!function<F>::ok) {
      return ways;  // the compiler has said why
    } else if constexpr (function<F>::is_coroutine) {
      ways.start = &start_coroutine<F>;
      ways.identity = &identity_of<F>;
      ways.decode = &decoded<value_of_function<F>>;
    } else {
      ways.run = &run_function<F>;
      if constexpr (!function<F>::takes_context) ways.prepare = &prepare_function<F>;
      ways.identity = &identity_of<F>;
      ways.decode = &decoded<value_of_function<F>>;
    }
    return ways;
  }();
  return code;
}

/// F in the function table, under its own name.
template <auto F>
using registered_code = registered<&code_of<F>, F>;

}  // namespace cohort::graph::runtime
