// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// The layer progress: an engine that lets an `asio::io_context` wait for what only answers when it
/// is asked, and futures, `when_all` and deadlines for what is in flight. It knows no MPI:
/// `as_future` and the others work with any operation of Asio.
///
/// \code
/// using namespace std::chrono_literals;
/// asio::steady_timer one(io, 1s), two(io, 2s);
/// std::vector<cohort::future<>> running;
/// running.push_back(one.async_wait(cohort::as_future));  // has started
/// running.push_back(two.async_wait(cohort::as_future));
/// co_await cohort::with_deadline(cohort::when_all(std::move(running)), 10s);  // or deadline_error
/// \endcode
///
/// What is polled is a source: `progress/polled_source.hpp` tells how to write one.

#include <cohort/progress/backoff.hpp>
#include <cohort/progress/blocking.hpp>
#include <cohort/progress/context.hpp>
#include <cohort/progress/deadline.hpp>
#include <cohort/progress/doorbell.hpp>
#include <cohort/progress/engine.hpp>
#include <cohort/progress/future.hpp>
#include <cohort/progress/handler_operation.hpp>
#include <cohort/progress/operation.hpp>
#include <cohort/progress/polled_source.hpp>
#include <cohort/progress/sync_wait.hpp>
#include <cohort/progress/when_all.hpp>
#include <cohort/progress/when_any.hpp>
