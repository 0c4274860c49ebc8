#include "lockstep/apps/shared/command_line/number_argument.h"

#include <gtest/gtest.h>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

template <typename Act>
std::string number_refusal(const Act& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(NumberArgument, TakesTheEndsOfARange) {
  const IntegerRange range{.least = -2, .most = 3};
  EXPECT_EQ(parse_integer("--n", "-2", range), -2);
  EXPECT_EQ(parse_integer("--n", "3", range), 3);
  EXPECT_EQ(number_refusal([&] { parse_integer("--n", "4", range); }),
            "--n: expected a whole number from -2 to 3, but got '4'");
  EXPECT_EQ(number_refusal([] { parse_integer("--n", "0", {}); }),
            "--n: expected a whole number of 1 or more, but got '0'");
}

TEST(NumberArgument, TellsNumbersByWhetherTheirEndsBelongToThem) {
  EXPECT_EQ(parse_fraction("--x", "0"), 0);
  EXPECT_EQ(parse_amount("--x", "0"), 0);
  EXPECT_EQ(parse_amount("--x", "1e3"), 1000);
  EXPECT_EQ(parse_factor("--x", "0.5"), 0.5);
  EXPECT_THROW(parse_fraction("--x", "1"), UsageError);
  EXPECT_THROW(parse_factor("--x", "0"), UsageError);
  EXPECT_THROW(parse_factor("--x", "1"), UsageError);
  EXPECT_THROW(parse_positive("--x", "0"), UsageError);
  EXPECT_THROW(parse_amount("--x", "-1e-300"), UsageError);
}

TEST(NumberArgument, TakesNoNumberThatIsNotFinite) {
  for (const std::string text : {"nan", "inf", "-inf", "1e999"}) {
    EXPECT_THROW(parse_fraction("--x", text), UsageError) << text;
    EXPECT_THROW(parse_factor("--x", text), UsageError) << text;
    EXPECT_THROW(parse_positive("--x", text), UsageError) << text;
    EXPECT_THROW(parse_amount("--x", text), UsageError) << text;
  }
}

}  // namespace
}  // namespace lockstep::apps
