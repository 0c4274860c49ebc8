#include "lockstep/strategies/coordinator/closure_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ClosureValues, AFunctionGetsItsArgumentsByTheirTypes) {
  const auto function = make_closure_function(
      [](bool flag, int32_t count, float rate, const std::string& name, const torch::Tensor& ids) {
        return std::tuple(flag, count + 1, rate * 2, name + "!", ids + 1);
      });
  const auto results = function({true, int64_t{-5}, 0.25, std::string("tower"), torch::tensor({1, 2})});
  ASSERT_EQ(results.size(), 5U);
  EXPECT_EQ(std::get<bool>(results[0]), true);
  EXPECT_EQ(std::get<int64_t>(results[1]), -4);
  EXPECT_EQ(std::get<double>(results[2]), 0.5);
  EXPECT_EQ(std::get<std::string>(results[3]), "tower!");
  EXPECT_TRUE(std::get<torch::Tensor>(results[4]).equal(torch::tensor({2, 3})));
}

TEST(ClosureValues, AFunctionReturnsNothingOrOneValue) {
  int calls = 0;
  EXPECT_TRUE(make_closure_function([&] { ++calls; })({}).empty());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(std::get<std::string>(make_closure_function([] { return "text"; })({}).at(0)), "text");
}

double half_of(double number) {
  return number / 2;
}

TEST(ClosureValues, AnIntegerIsANumberToo) {
  EXPECT_EQ(std::get<double>(make_closure_function(half_of)({int64_t{3}}).at(0)), 1.5);
}

TEST(ClosureValues, OtherArgumentsAreRefused) {
  const auto function = make_closure_function([](double, uint8_t) {});
  EXPECT_THAT([&] { function({1.0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected 2 arguments, but got 1")));
  EXPECT_THAT(([&] {
                function({std::string("1"), int64_t{1}});
              }),
              ThrowsMessage<InvalidArgument>(HasSubstr("expected a number as argument 0, but got a text")));
  EXPECT_THAT(
      ([&] {
        function({1.0, 1.0});
      }),
      ThrowsMessage<InvalidArgument>(HasSubstr("expected an integer as argument 1, but got a number")));
  EXPECT_THAT(([&] {
                function({1.0, int64_t{256}});
              }),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("argument 1"), HasSubstr("256"))));
}

TEST(ClosureValues, ErrorsNameTheClosure) {
  const auto function = make_closure_function([](double) {}, "train");
  EXPECT_THAT([&] { function({}); },
              ThrowsMessage<InvalidArgument>("closure 'train': expected 1 argument, but got 0"));
  EXPECT_THAT([&] { function({true}); },
              ThrowsMessage<InvalidArgument>(
                  "closure 'train': expected a number as argument 0, but got a truth value"));
}

}  // namespace
}  // namespace lockstep
