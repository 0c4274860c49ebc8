#include "lockstep/runtime/workers/worker_info.h"

#include <gtest/gtest.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

TEST(WorkerInfoTest, ReadsWhatItWrote) {
  const WorkerInfo card{.host = "a\tb\\",
                        .address = "::1",
                        .heartbeat_port = 65535,
                        .num_replicas = 3,
                        .facts = {{"world size", "2"}, {"two\nlines", "\\n"}, {"", ""}}};
  EXPECT_EQ(WorkerInfo::parse(card.text()), card);
  EXPECT_EQ(WorkerInfo::parse(WorkerInfo{}.text()), WorkerInfo{});
}

TEST(WorkerInfoTest, RefusesWhatItDidNotWrite) {
  const auto card = [](const std::string& port, const std::string& replicas, const std::string& facts = "") {
    return "host\ta\naddress\tb\nheartbeat_port\t" + port + "\nnum_replicas\t" + replicas + "\n" + facts;
  };
  EXPECT_NO_THROW(WorkerInfo::parse(card("1", "1", "name\tvalue\n")));
  for (const std::string& text :
       {std::string(), std::string("host\ta\n"), card("1", "1").substr(1), card("1", "1", "name"),
        card("1", "1", "name\n"), card("1", "1", "name\tvalue"), card("1", "1", "a\tb\tc\n"),
        card("1", "1", "a\tescape \\x of nothing\n"), card("1", "1", "a\thalf an escape \\\n"),
        card("007", "1"), card("-1", "1"), card("65536", "1"), card("1", "0"), card("1", "-1"),
        card("1", "65537"), card("1", "2147483648"), card("1", "1 ")})
    EXPECT_THROW(WorkerInfo::parse(text), InvalidArgument) << text;
}

TEST(WorkerInfoTest, NamesTheFirstDifference) {
  const WorkerInfo card{.facts = {{"model", "a"}, {"data", "b"}}};
  EXPECT_FALSE(card.difference(card));
  WorkerInfo other = card;
  other.facts[1].second = "c";
  const auto difference = card.difference(other);
  ASSERT_TRUE(difference);
  EXPECT_EQ(difference->fact, "data");
  EXPECT_EQ(difference->here, "b");
  EXPECT_EQ(difference->there, "c");
  other.facts.pop_back();
  EXPECT_EQ(card.difference(other)->there, "");
}

}  // namespace
}  // namespace lockstep
