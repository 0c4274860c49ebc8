#include "lockstep/strategies/coordinator/internal/closure_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <variant>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

ClosureValues some_values() {
  return {true, int64_t{-3}, 0.1, std::string("caf\xc3\xa9"), torch::arange(6).reshape({2, 3}).t()};
}

void expect_some_values(const ClosureValues& values) {
  ASSERT_EQ(values.size(), 5U);
  EXPECT_EQ(std::get<bool>(values[0]), true);
  EXPECT_EQ(std::get<int64_t>(values[1]), -3);
  EXPECT_EQ(std::get<double>(values[2]), 0.1);
  EXPECT_EQ(std::get<std::string>(values[3]), "caf\xc3\xa9");
  EXPECT_TRUE(std::get<torch::Tensor>(values[4]).equal(torch::arange(6).reshape({2, 3}).t()));
}

template <typename Request>
Request sent(const Request& request) {
  return std::get<Request>(decode_worker_request(encode_worker_request(request)));
}

TEST(ClosureMessages, WhatAWorkerHoldsComesAsItWent) {
  const auto got =
      sent(AskForClosure{.session = UINT64_MAX, .worker = "worker 1", .coordinator = 5, .held = {3, 9}});
  EXPECT_EQ(got.session, UINT64_MAX);
  EXPECT_EQ(got.worker, "worker 1");
  EXPECT_EQ(got.coordinator, 5U);
  EXPECT_THAT(got.held, ElementsAre(3U, 9U));
  EXPECT_THAT(sent(AskForClosure{.session = 1, .worker = "worker 1"}).held, IsEmpty());
}

TEST(ClosureMessages, ResultsComeAsTheyWent) {
  const auto got = sent(ReportEnd{.session = 1,
                                  .worker = "worker 1",
                                  .ended = {.coordinator = 5, .closure = 7, .results = some_values()}});
  EXPECT_EQ(got.session, 1U);
  EXPECT_EQ(got.worker, "worker 1");
  EXPECT_EQ(got.ended.coordinator, 5U);
  EXPECT_EQ(got.ended.closure, 7U);
  EXPECT_FALSE(got.ended.error);
  expect_some_values(got.ended.results);
}

TEST(ClosureMessages, ErrorsComeAsTheyWentAndNameTheWorker) {
  const auto got =
      sent(ReportEnd{.session = 1,
                     .worker = "worker 1",
                     .ended = {.closure = 7, .error = std::make_exception_ptr(InvalidArgument("no"))}});
  ASSERT_TRUE(got.ended.error);
  EXPECT_THAT([&] { std::rethrow_exception(got.ended.error); },
              ThrowsMessage<InvalidArgument>(StrEq("worker 1: no")));
}

TEST(ClosureMessages, BeatsAndAnswersComeAsTheyWent) {
  const auto beat = sent(WorkerBeat{9, "worker 2"});
  EXPECT_EQ(beat.session, 9U);
  EXPECT_EQ(beat.worker, "worker 2");
  EXPECT_EQ(sent(LeaveJob{8}).session, 8U);
  const auto given = decode_given(encode_given({.kind = GivenClosure::Kind::kClosure,
                                                .coordinator = 5,
                                                .closure = 12,
                                                .function = "train_step",
                                                .arguments = some_values()}));
  EXPECT_EQ(given.coordinator, 5U);
  EXPECT_EQ(given.kind, GivenClosure::Kind::kClosure);
  EXPECT_EQ(given.closure, 12U);
  EXPECT_EQ(given.function, "train_step");
  expect_some_values(given.arguments);
  for (const auto kind : {GivenClosure::Kind::kNone, GivenClosure::Kind::kEnd})
    EXPECT_EQ(decode_given(encode_given({.kind = kind})).kind, kind);
}

TEST(ClosureMessages, TensorsThatCannotBeSentAreRefused) {
  EXPECT_THAT(
      [] {
        check_closure_values({true, torch::Tensor()});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("as value 1, but got an undefined one")));
  EXPECT_THAT(([] { encode_given({.arguments = {torch::eye(2).to_sparse()}}); }),
              ThrowsMessage<InvalidArgument>(HasSubstr("as value 0, but got SparseCPUFloatType")));
}

/// Any bytes are either read or refused.
template <typename Decode>
void expect_read_or_refused(const RpcMessage& message, const Decode& decode) {
  const auto attempt = [&](const RpcMessage& changed) {
    try {
      decode(changed);
      return true;
    } catch (const InvalidArgument&) {
      return false;
    }
  };
  ASSERT_TRUE(attempt(message));
  for (size_t size = 0; size < message.fields.size(); ++size) {
    auto shorter = message;
    shorter.fields.resize(size);
    EXPECT_FALSE(attempt(shorter)) << size;
  }
  for (size_t bit = 0; bit < 8 * message.fields.size(); ++bit) {
    auto flipped = message;
    flipped.fields[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
    attempt(flipped);
  }
  auto longer = message;
  longer.fields.push_back(0);
  EXPECT_FALSE(attempt(longer));
  if (!message.tensors.empty()) {
    auto without = message;
    without.tensors.clear();
    EXPECT_FALSE(attempt(without));
  }
  auto with_more = message;
  with_more.tensors.push_back(torch::ones(1));
  EXPECT_FALSE(attempt(with_more));
}

TEST(ClosureMessages, CutAndChangedOnesAreReadOrRefused) {
  expect_read_or_refused(
      encode_worker_request(
          ReportEnd{.session = 1, .worker = "worker 1", .ended = {.closure = 7, .results = some_values()}}),
      decode_worker_request);
  expect_read_or_refused(
      encode_worker_request(
          ReportEnd{.session = 1,
                    .worker = "worker 1",
                    .ended = {.closure = 7, .error = std::make_exception_ptr(InvalidArgument("no"))}}),
      decode_worker_request);
  expect_read_or_refused(encode_given({.kind = GivenClosure::Kind::kClosure,
                                       .closure = 12,
                                       .function = "train_step",
                                       .arguments = some_values()}),
                         decode_given);
}

}  // namespace
}  // namespace lockstep
