// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Gate of the layer rendezvous: values sent and received by key, step by step.

#include <cohort/rendezvous/rendezvous.hpp>
#include <cohort/rendezvous/step.hpp>
#include <cohort/rendezvous/table.hpp>
#include <cohort/rendezvous/vocabulary.hpp>
