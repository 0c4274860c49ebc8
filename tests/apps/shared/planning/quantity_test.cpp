#include "lockstep/apps/shared/planning/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/apps/shared/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

TEST(Quantity, ReadsBytes) {
  EXPECT_EQ(parse_bytes("memory", "80GiB"), 80.0 * 1024 * 1024 * 1024);
  EXPECT_EQ(parse_bytes("memory", "24GB"), 24e9);
  EXPECT_EQ(parse_bytes("memory", "0.5MiB"), 524288);
  EXPECT_EQ(parse_bytes("memory", "4096"), 4096);
}

TEST(Quantity, ReadsRates) {
  EXPECT_EQ(parse_byte_rate("link", "400Gbit/s"), 50e9);
  EXPECT_EQ(parse_byte_rate("link", "3.35TB/s"), 3.35e12);
  EXPECT_EQ(parse_flop_rate("flops", "400T"), 400e12);
  EXPECT_EQ(parse_flop_rate("flops", "67TFLOP/s"), 67e12);
  EXPECT_EQ(parse_flop_rate("flops", "1e12"), 1e12);
  EXPECT_DOUBLE_EQ(parse_seconds("link-latency", "5us"), 5e-6);
}

TEST(Quantity, RefusesOtherUnitsAndNumbers) {
  for (const std::string text :
       {"", "GiB", "80", "-1GB/s", "0GB/s", "nanGB/s", "infGB/s", "80GiB", "80GB/s ", "80gb/s"}) {
    try {
      parse_byte_rate("link", text);
      FAIL() << text;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.what(),
                "--link: expected a rate such as 400Gbit/s or 3.35TB/s, but got '" + text + "'");
    }
  }
  EXPECT_THROW(parse_bytes("memory", "80Gbit"), UsageError);
  EXPECT_THROW(parse_seconds("link-latency", "5"), UsageError);
}

TEST(Quantity, WritesGibibytes) {
  EXPECT_EQ(gibibytes_text(80.0 * 1024 * 1024 * 1024), "80.0 GiB");
  EXPECT_EQ(gibibytes_text(1.5 * 1024 * 1024 * 1024), "1.50 GiB");
  EXPECT_EQ(gibibytes_text(3.0 * 1024 * 1024), "3 MiB");
}

}  // namespace
}  // namespace lockstep::apps
