// Chat templates: the language against what jinja2 makes of small templates, templates that mean harm, the built-in
// ones against what transformers renders, and what bad files and conversations are told. The expectations of the
// language are made by chat_template_differential.py, which also compares public templates; chat_templates.json holds
// texts that transformers rendered by the templates of checkpoints.
#include "model/files/bad_file.h"
#include "model/files/json_file.h"
#include "model/text/chat/chat_template.h"
#include "model/text/chat/json_value.h"
#include "tests/model/cpu_seconds.h"
#include "tests/model/temporary_directory.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace chat_template_test {

using namespace entrodraft;
using namespace entrodraft::model;
using nlohmann::ordered_json;

const std::string kChatmlText = read_text_file(ENTRODRAFT_SOURCE_DIR "/tests/model/chatml.jinja", 1 << 20);
const jinja::Variables kTokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};

std::string quoted(const std::string& text) {
    return ordered_json(text).dump();
}

std::tm fixed_date() {
    std::tm date{};
    date.tm_mday = 26;
    date.tm_mon = 6;
    date.tm_year = 124;
    timegm(&date);
    return date;
}

std::string run(const std::string& text, const jinja::Variables& variables = {}) {
    return jinja::Template(text).render(variables, fixed_date());
}

Conversation conversation_of(const ordered_json& messages) {
    return {jinja::value_of_json(messages)};
}

std::string render(const std::string& text, const ordered_json& messages, const jinja::Variables& tokens = kTokens) {
    return ChatTemplate("t", text, tokens).render(conversation_of(messages));
}

std::string render_named(const std::string& name, const ordered_json& messages) {
    return render(std::string(named_chat_template(name).value()), messages);
}

template <typename Call> std::string message_of(Call call) {
    try {
        call();
    } catch (const std::exception& error) {
        return error.what();
    }
    return "no error";
}

std::string error_of(const std::string& text, const jinja::Variables& variables = {}) {
    return message_of([&] { run(text, variables); });
}

std::string open_error(const TemporaryDirectory& directory) {
    return message_of([&] { ChatTemplate::open(directory.path()); });
}

const ordered_json kHi = ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");

TEST(JinjaTemplates, MakeWhatJinja2MakesOfThem) {
    const auto file =
        ordered_json::parse(read_text_file(ENTRODRAFT_SOURCE_DIR "/tests/model/jinja_expectations.json", 1 << 20));
    jinja::Variables variables;
    for (const auto& [name, value] : file["variables"].items())
        variables.emplace_back(name, jinja::value_of_json(value));
    ASSERT_GT(file["templates"].size(), 200u);
    for (const auto& one : file["templates"]) {
        const std::string text = one["template"];
        if (one["text"].is_null()) {
            EXPECT_THROW(run(text, variables), jinja::TemplateError) << text;
        } else {
            EXPECT_EQ(run(text, variables), one["text"].get<std::string>()) << text;
        }
    }
}

TEST(JinjaTemplates, SayLineAndReasonWhereTheyFail) {
    EXPECT_EQ(error_of("a\n{{ b.c }}"), "line 2: 'b' is undefined");
    EXPECT_EQ(error_of("{{ {}.a.b }}"), "line 1: a dict has no attribute 'a'");
    EXPECT_EQ(error_of("{% if x %}\n\n{% foo %}"), "line 3: the tag 'foo' is not known here");
    EXPECT_EQ(error_of("{% for x in y %}"), "line 1: the template ends without {% endfor %}");
    EXPECT_EQ(error_of("\n{{ 1|nosuch }}"), "line 2: there is no filter named 'nosuch'");
    EXPECT_EQ(error_of("{{ [].append(1) }}"), "line 1: 'append' would change a list, which templates may not");
    EXPECT_EQ(error_of("{{ raise_exception('its own words') }}"), "its own words");
    EXPECT_EQ(error_of("{{ 'a'|indent(width='x', nosuch=1) }}"), "line 1: indent: has no parameter named 'nosuch'");
}

std::string times(int n, const std::string& text) {
    std::string all;
    for (int i = 0; i < n; ++i)
        all += text;
    return all;
}

TEST(JinjaTemplates, DoNotComputeWithIntegersBeyond64Bits) {
    const std::string x = "{% set x = '99999999999999999999'|int %}";
    for (const char* op : {"+", "-", "*", "/", "//", "%"})
        EXPECT_EQ(error_of(x + "{{ x " + op + " 2 }}"),
                  fmt::format("line 1: '{}' is not defined for int beyond 64 bits and int", op));
    for (const char* other : {"{{ -x }}", "{{ [1, x]|sum }}", "{{ x < 2 }}", "{{ x is even }}", "{{ range(x) }}",
                              "{{ 'a' * x }}", "{{ x|abs }}", "{{ [x, 1]|sort }}", "{{ 99999999999999999999 }}"})
        EXPECT_NE(error_of(x + other).find("64 bits"), std::string::npos) << other << error_of(x + other);
}

TEST(JinjaTemplates, NameWhatOfTheLanguageTheyCannotUse) {
    EXPECT_EQ(error_of("{{ 'a'|e }}"), "line 1: there is no filter named 'e'");
    EXPECT_EQ(error_of("{{ [1]|batch(2) }}"), "line 1: there is no filter named 'batch'");
    EXPECT_EQ(error_of("{{ range is callable }}"), "line 1: there is no test named 'callable'");
    EXPECT_EQ(error_of("{{ 6 is divisibleby 3 }}"), "line 1: there is no test named 'divisibleby'");
    for (const char* method :
         {"center", "count", "find", "isdigit", "removeprefix", "removesuffix", "splitlines", "title"})
        EXPECT_EQ(error_of(fmt::format("{{{{ 'a'.{}('a') }}}}", method)),
                  fmt::format("line 1: a str has no attribute '{}'", method));
    EXPECT_EQ(error_of("{{ [1].index(1) }}"), "line 1: a list has no attribute 'index'");
    EXPECT_EQ(error_of("{{ '%s' % 'a' }}"), "line 1: '%' is not defined for str and str");
    for (const char* field : {"{:>5}", "{0}", "{name}", "{open", "}"})
        EXPECT_EQ(error_of(fmt::format("{{{{ '{}'.format(1) }}}}", field)),
                  fmt::format("line 1: format: only {{}} is known here, not {}", field));
    EXPECT_EQ(error_of("{{ 2 ** 3 }}"), "line 1: expected an expression, found '*'");
    EXPECT_EQ(error_of("{{ f(*x) }}"), "line 1: expected an expression, found '*'");
    EXPECT_EQ(error_of("{{ 1 < 2 < 3 }}"), "line 1: expected }}, found '<'");
    EXPECT_EQ(error_of("{{ 1, 2 }}"), "line 1: expected }}, found ','");
    EXPECT_EQ(error_of("{% set x = 1, 2 %}"), "line 1: expected the end of the tag, found ','");
    EXPECT_EQ(error_of("{% set x | upper %}"), "line 1: expected the end of the tag, found '|'");
    EXPECT_EQ(error_of("{{ x|first(1)(2) }}"), "line 1: expected }}, found '('");
    EXPECT_EQ(error_of("{{ (1,) + (2,) }}"), "line 1: '+' is not defined for tuple and tuple");
    EXPECT_EQ(error_of("{{ 0x1F }}"), "line 1: numbers have digits only, not 'x'");
    EXPECT_EQ(error_of("{{ '\\101' }}"), "line 1: \\1 is not known here; write \\uXXXX");
    EXPECT_EQ(error_of("{{ cycler(1) }}"), "line 1: 'cycler' is undefined");
    for (const char* attribute : {"cycle", "depth", "revindex", "revindex0"})
        EXPECT_EQ(error_of(fmt::format("{{% for i in [1] %}}{{{{ loop.{} }}}}{{% endfor %}}", attribute)),
                  fmt::format("line 1: 'loop' has no attribute '{}'", attribute));
    EXPECT_EQ(error_of("{% for i in [1] recursive %}"), "line 1: expected the end of the tag, found 'recursive'");
    for (const char* tag : {"call", "do", "raw", "with"})
        EXPECT_EQ(error_of(fmt::format("{{% {} %}}", tag)), fmt::format("line 1: the tag '{}' is not known here", tag));
    EXPECT_EQ(error_of("{{ range(3) }}"),
              "line 1: a range, a view of a dict or a generator has no text; make a list of it");
    EXPECT_EQ(error_of("{{ {1.5: 2} }}"), "line 1: a float cannot be a key of a dict");
}

// Most of the memory, in MiB, that a rendering takes, in a process of its own; where it does not end in an error: 0.
int peak_mib(const std::string& text) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        rusage before{}, after{};
        getrusage(RUSAGE_SELF, &before);
        int mib = 0;
        try {
            (void)run(text);
        } catch (const jinja::TemplateError&) {
            getrusage(RUSAGE_SELF, &after);
            mib = static_cast<int>((after.ru_maxrss - before.ru_maxrss) / 1024) + 1;
        }
        _exit(write(ends[1], &mib, sizeof mib) == sizeof mib ? 0 : 1);
    }
    int mib = -1, status = -1;
    EXPECT_EQ(read(ends[0], &mib, sizeof mib), static_cast<ssize_t>(sizeof mib));
    waitpid(child, &status, 0);
    close(ends[0]), close(ends[1]);
    return mib;
}

// The limit is 128 MiB of text and lists.
TEST(JinjaTemplates, TakeNotMuchMoreMemoryThanTheLimit) {
    const std::string text = "{% set x = 'a' * 15000000 %}";
    for (const std::string& made :
         {std::string("{% set x = 'a' * 120000000 %}{{ x.split('a')|length }}"), text + "{{ x|list|length }}",
          text + "{% for c in x %}{% endfor %}", text + "{{ (x|list)|sort }}", text + "{{ x|sort }}",
          text + "{{ x|list|reverse|list }}", text + "{{ x|map('upper')|list }}",
          std::string("{% set x = 'a ' * 60000000 %}{{ x.split()|length }}"),
          std::string("{% set x = '\\n' * 120000000 %}{{ x|indent|length }}"),
          std::string("{% set x = 'a' * 120000000 %}{{ x.replace('a', 'b')|length }}"),
          std::string("{% set x = '.' * 120000000 %}{{ [1]|map(attribute=x)|list }}"),
          std::string("{% set x = '\\x01' * 120000000 %}{{ [x] }}"),
          std::string("{% set x = '&' * 120000000 %}{{ (''|safe + x)|length }}"),
          std::string("{% set r = range(100000) %}{% for i in range(20000) %}{% for c in r %}{{ loop.length }}"
                      "{% break %}{% endfor %}{% endfor %}"),
          std::string("{% set r = ('a' * 300000)|list %}{{ (r|sort|list + r|sort|list + r|sort|list)|length }}"
                      "{{ r|sort }}{{ r|sort }}")}) {
        const int mib = peak_mib(made);
        EXPECT_GT(mib, 0) << made << " ends without an error";
        EXPECT_LT(mib, kSlowdown > 1 ? 2000 : 512) << made;
    }
}

TEST(JinjaTemplates, ThatMeanHarmEndSoonWithAnError) {
    const std::string deep =
        "{% set ns = namespace(x=[1]) %}{% for i in range(95) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    std::string many_names, many_attributes;
    for (int i = 0; i < 60'000; ++i)
        many_names += "{% set a" + std::to_string(i) + "=1%}";
    for (int i = 0; i < 5'000; ++i)
        many_attributes += "a" + std::to_string(i) + "=1,";
    const std::vector<std::string> cases = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}{% endfor "
        "%}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}{% "
        "endfor %}",
        "{{ range(1000000000) }}",
        "{{ 'x' * 1000000000000 }}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ 'a'|indent(1000000000000000, true) }}",
        "{% set x = 'x' * 1000000 %}{{ x.replace('x', x) }}",
        "{% set x = 'x' * 1000000 %}{{ x|list|join(x) }}",
        "{% set x = 'x' * 10000000 %}{% for i in range(100000) %}{{ x|upper|length }}{% endfor %}",
        "{% set x = 'x' * 10000000 %}{% for i in range(100000) %}{{ x == x ~ '' }}{% endfor %}",
        "{% set x = 'x' * 10000000 %}{% for i in range(100000) %}{{ x[-1] }}{% endfor %}",
        "{% set x = 'x' * 10000000 %}{% for i in range(100000) %}{{ 'y' in x }}{% endfor %}",
        "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(x) %}{% for i in range(9) %}{{ f(x) }}{% endfor %}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}",
        "{% set ns = namespace(x={}) %}{% for i in range(100000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
        deep + "{{ ns.x }}",
        deep + "{{ ns.x|tojson }}",
        deep + "{{ ns.x|tojson(indent=1000) }}",
        deep + "{% set a = ns.x %}" + deep + "{{ a == ns.x }}{{ a < ns.x }}",
        "{{ " + times(100000, "(") + "1" + times(100000, ")") + " }}",
        "{{ " + times(100000, "[") + " }}",
        "{{ " + times(100000, "{'a':") + " }}",
        "{{ " + times(100000, "not ") + "1 }}",
        "{{ " + times(100000, "-") + "1 }}",
        "{{ 1" + times(100000, " + 1") + " }}",
        "{{ 1" + times(100000, "|abs") + " }}",
        "{{ x" + times(100000, ".x") + " }}",
        "{{ 1" + times(100000, " if 1 else 1") + " }}",
        times(100000, "{% if 1 %}"),
        times(100000, "{% for x in y %}"),
        "{{ namespace(" + times(100000, "a=namespace(") + " }}",
        "{% set " + times(100000, "(") + "a = 1 %}",
        "{{ range(100000)|map('string')|map('upper')|list|sort|join|list|unique|list|tojson(indent=900) "
        "}}",
        "{% for i in range(100000) %}{{ range(100000)|sum }}{% endfor %}",
        "{% for i in range(100000) if range(100000)|sum > 1000000000000000 %}{% endfor %}",
        "{% set x = range(100000) %}{% for i in x %}{{ x|first }}{{ x|last }}{% endfor %}",
        "{% set x = 'x' * 10000000 %}{% set d = {'a': 1} %}{% for i in range(100000) %}{{ d[x] }}{{ d.get(x) }}{% "
        "endfor %}",
        "{% set x = 'x' * 10000000 %}{{ x.strip('y' * 1000000 ~ 'x') }}{% for i in range(100000) %}{{ x.strip('x') "
        "}}{% "
        "endfor %}",
        "{% set x = 'x' * 1000000 %}{{ ('x' * 500000 ~ 'y') in x }}",
        "{% set x = 'x' * 1000000 %}{{ x.split('x' * 500000 ~ 'y') }}",
        "{% set n = namespace(" + many_attributes + "z=1) %}{% for i in range(100000) %}{{ n.x }}{% endfor %}",
        many_names,
    };
    for (const std::string& text : cases) {
        const double begin = cpu_seconds();
        EXPECT_THROW(run(text), jinja::TemplateError) << text.substr(0, 200);
        EXPECT_LT(cpu_seconds() - begin, kSlowdown) << text.substr(0, 200);
    }
}

TEST(JinjaTemplates, LoseNothingWhereObjectsLeadToEachOther) { // the sanitizer of leaks watches
    EXPECT_EQ(run("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = [b] %}{{ a.b[0].a.b|length }}"),
              "1");
    EXPECT_EQ(run("{% set ns = namespace(m=none) %}{% for i in range(5000) %}{% set old = ns.m %}"
                  "{% macro f() %}{{ old }}{% endmacro %}{% set ns.m = f %}{% endfor %}{{ ns.m is defined }}"),
              "True");
}

TEST(ChatTemplate, BuiltInOnesRenderWhatTransformersRendersByThoseOfCheckpoints) {
    const auto golden =
        ordered_json::parse(read_text_file(ENTRODRAFT_SOURCE_DIR "/tests/model/chat_templates.json", 1 << 20));
    for (const std::string_view one : chat_template_names()) {
        if (one == "vicuna") continue; // no checkpoint carries one; tested below
        const std::string name(one);
        ASSERT_TRUE(golden["templates"].contains(name)) << name;
        const auto& texts = golden["templates"][name];
        ASSERT_EQ(texts.size(), golden["chats"].size());
        for (std::size_t i = 0; i < texts.size(); ++i) {
            if (texts[i].is_null()) continue; // the template raises, or drops a message
            EXPECT_EQ(render_named(name, golden["chats"][i]), texts[i].get<std::string>()) << name << " chat " << i;
        }
    }
}

TEST(ChatTemplate, VicunaIsAsItsAuthorsRunIt) {
    EXPECT_EQ(render_named("vicuna", ordered_json::parse(R"([{"role": "system", "content": "Be kind."},
                                                             {"role": "user", "content": "Hi"},
                                                             {"role": "assistant", "content": "Hello!"},
                                                             {"role": "user", "content": "Who are you?"}])")),
              "<s>Be kind. USER: Hi ASSISTANT: Hello!</s>USER: Who are you? ASSISTANT:");
    EXPECT_EQ(render_named("vicuna", kHi).rfind("<s>A chat between a curious user", 0), 0u);
}

TEST(ChatTemplate, WhatATemplateRefusesIsSaidInItsOwnWords) {
    EXPECT_EQ(message_of([] { render("{{ raise_exception('Only users!') }}", kHi); }),
              "the chat template t refuses this conversation: Only users!");
    EXPECT_EQ(message_of([] { render("\n{{ messages[0].x.y }}", kHi); }),
              "the chat template t fails at line 2: a dict has no attribute 'x'; --chat-template takes another, and a "
              "prompt needs none");
    EXPECT_EQ(message_of([] { render("", ordered_json::array()); }), "messages is empty");
    jinja::Dict message;
    message.set("content", "ab\xff");
    EXPECT_EQ(message_of([&] { ChatTemplate("t", "", {}).render({std::vector<jinja::Value>{message}}); }),
              "messages[0].content: invalid UTF-8 at byte 2");
}

TEST(ChatTemplate, ALastMessageOfTheAssistantIsContinuedWithItsBlanksWhereTheTemplateKeepsThem) {
    const auto messages =
        ordered_json::parse(R"([{"role": "user", "content": "Count"}, {"role": "assistant", "content": "1, 2, "}])");
    EXPECT_EQ(render_named("chatml", messages), "<|im_start|>user\nCount<|im_end|>\n<|im_start|>assistant\n1, 2, ");
    EXPECT_EQ(render_named("gemma", messages),
              "<s><start_of_turn>user\nCount<end_of_turn>\n<start_of_turn>model\n1, 2,");
    const std::string loop = "{% for m in messages %}", end = "{% endfor %}";
    EXPECT_EQ(render(loop + "{% for p in m.content %}{{ p.text or p }}{% endfor %}." + end,
                     ordered_json::parse(
                         R"([{"role": "assistant", "content": [{"text": "a"}, {"text": "b "}, {"image": 1}]}])")),
              "ab ");
    EXPECT_NE(
        message_of([&] { render(loop + "{{ m.content|length }}" + end, messages); }).find("rewrites the last message"),
        std::string::npos);
    EXPECT_NE(message_of([&] { render("{{ messages|length }}", messages); }).find("reads no content"),
              std::string::npos);
    EXPECT_NE(message_of([&] {
                  render("content", ordered_json::parse(R"([{"role": "assistant", "content": null}])"));
              }).find("messages[0]: the assistant's last message is continued, and this one has no text"),
              std::string::npos);
}

TEST(ChatTemplate, TemplatesSeeWhatTransformersShowsThem) {
    EXPECT_EQ(
        render("{{ bos_token }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ pad_token is defined }}", kHi),
        "<s>NoneNoneTrueFalse");
    EXPECT_EQ(render("{{ messages[0] }}", ordered_json::parse(R"([{"role": "user", "reasoning": "r"}])")),
              "{'thinking': 'r', 'role': 'user', 'reasoning': 'r', 'reasoning_content': 'r'}");
    Conversation own = conversation_of(kHi);
    own.variables = {{"enable_thinking", jinja::Value(false)}, {"bos_token", "B"}};
    EXPECT_EQ(ChatTemplate("t", "{{ enable_thinking }}{{ bos_token }}", kTokens).render(own), "FalseB");
}

TEST(ChatTemplate, TheDateIsFixedUnlessItIsSet) {
    ChatTemplate dated("t", "{{ strftime_now('%A, %d %b %Y') }} {{ date_string }}", {});
    EXPECT_TRUE(dated.has_date());
    EXPECT_FALSE(ChatTemplate("t", kChatmlText, {}).has_date());
    EXPECT_EQ(dated.render(conversation_of(kHi)), "Friday, 26 Jul 2024 ");
    dated.set_date("1 Nov 2026");
    EXPECT_EQ(dated.render(conversation_of(kHi)), "Sunday, 01 Nov 2026 1 Nov 2026");
    for (const char* bad : {"", "2026-11-01", "31 Feb 2026", "1 Nov", "1 Noe 2026", "1 Nov 2026x"})
        EXPECT_THROW(dated.set_date(bad), std::invalid_argument) << bad;
}

TEST(ChatTemplate, ComesFromItsOwnFileElseFromTheTokenizersSettings) {
    const TemporaryDirectory directory;
    const auto text = [&](const char* tools = "null") {
        Conversation conversation = conversation_of(kHi);
        conversation.tools = jinja::value_of_json(ordered_json::parse(tools));
        return ChatTemplate::open(directory.path())->render(conversation);
    };
    EXPECT_FALSE(ChatTemplate::open(directory.path()).has_value());
    directory.write("tokenizer_config.json", R"({"bos_token": null, "chat_template": null})");
    EXPECT_FALSE(ChatTemplate::open(directory.path()).has_value());
    directory.write("tokenizer_config.json", R"({"chat_template": )" + quoted(kChatmlText) + "}");
    EXPECT_EQ(text(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    directory.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "for tools"},
                                                 {"name": "default", "template": "plain"}]})");
    EXPECT_EQ(text(), "plain");
    EXPECT_EQ(text("[]"), "for tools");
    directory.write("chat_template.jinja", "its own");
    EXPECT_EQ(text(), "its own");
}

TEST(ChatTemplate, TokensComeFromTheSettingsAsTextOrObjectElseFromTheMap) {
    const TemporaryDirectory directory;
    directory.write("own.jinja", "{{ bos_token }}|{{ eos_token }}|{{ image_token }}");
    const auto rendered = [&] {
        return ChatTemplate::named((directory.path() / "own.jinja").string(), directory.path())
            .render(conversation_of(kHi));
    };
    directory.write("tokenizer_config.json", R"({"bos_token": "<b>", "add_bos_token": true, "image_token": "<i>",
                                                 "eos_token": {"content": "<e>", "lstrip": false}})");
    EXPECT_EQ(rendered(), "<b>|<e>|<i>");
    directory.write("special_tokens_map.json", R"({"bos_token": "<m>", "eos_token": "<n>"})");
    directory.write("tokenizer_config.json", R"({"eos_token": "<e>"})");
    EXPECT_EQ(rendered(), "<m>|<e>|");
    directory.write("tokenizer_config.json", R"({"bos_token": null})");
    EXPECT_EQ(rendered(), "|<n>|");
}

TEST(ChatTemplate, AnUnknownNameIsToldAllNames) {
    const TemporaryDirectory directory;
    const std::string error = message_of([&] { ChatTemplate::named("lama", directory.path()); });
    EXPECT_NE(error.find("no chat template named 'lama'; there are chatml, "), std::string::npos) << error;
}

TEST(ChatTemplate, BadFilesAreRefusedWithFileAndReason) {
    struct Case {
        const char* file;
        std::string text;
        const char* part;
    };
    const std::vector<Case> cases = {
        {"tokenizer_config.json", "[]", "tokenizer_config.json: not a JSON object"},
        {"tokenizer_config.json", "{", "tokenizer_config.json"},
        {"tokenizer_config.json", R"({"chat_template": 5})", "chat_template must be a string or a list"},
        {"tokenizer_config.json", R"({"chat_template": [5]})", "must have a name and a template"},
        {"tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})", "must have a name and a template"},
        {"tokenizer_config.json", R"({"chat_template": []})", "no entry named default"},
        {"tokenizer_config.json", R"({"bos_token": 5, "chat_template": ""})",
         "field bos_token must be a string or an object"},
        {"tokenizer_config.json", R"({"chat_template": ")" + std::string((1 << 20) + 1, 'x') + "\"}",
         "more than 1048576 bytes"},
        {"tokenizer_config.json", R"({"chat_template": "\n{{"})",
         "tokenizer_config.json: the chat template cannot be read, line 2: a tag is not closed by }}; --chat-template"},
        {"chat_template.jinja", "ok\xff", "chat_template.jinja: invalid UTF-8 at byte 2"},
        {"chat_template.jinja", std::string((1 << 20) + 1, 'x'), "chat_template.jinja: 1048577 bytes are more than"},
    };
    for (const Case& one : cases) {
        const TemporaryDirectory directory;
        directory.write(one.file, one.text);
        EXPECT_NE(open_error(directory).find(one.part), std::string::npos)
            << one.part << " / " << open_error(directory);
    }
}

} // namespace chat_template_test
