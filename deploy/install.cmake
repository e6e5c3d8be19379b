# What `cmake --install` puts where, run at that time: PREFIX/bin the programs, PREFIX/lib/baton
# the launcher with its package, PREFIX/share/baton the demo model, PREFIX/share/man the manual,
# the cluster file and the unit with the paths that they have there. ETC is /etc for the prefix /usr, else PREFIX/etc.
# SOURCE and BINARIES: set by CMakeLists.txt. file(INSTALL) puts DESTDIR in front by itself, nothing else does.
set(prefix "${CMAKE_INSTALL_PREFIX}")
set(root "$ENV{DESTDIR}${prefix}")
if(prefix STREQUAL "/usr")
  set(etc /etc)
  set(run /run/baton)
  set(logs /var/log/baton)
else()
  set(etc "${prefix}/etc")
  set(run "${prefix}/run")
  set(logs "${prefix}/log")
endif()

file(INSTALL "${SOURCE}/deploy/baton" DESTINATION "${prefix}/lib/baton/deploy" USE_SOURCE_PERMISSIONS)
file(INSTALL "${SOURCE}/deploy/launcher" DESTINATION "${prefix}/lib/baton/deploy" FILES_MATCHING PATTERN "*.py")
file(WRITE "${root}/lib/baton/etc" "${etc}\n")
file(MAKE_DIRECTORY "${root}/bin")
file(CREATE_LINK "../lib/baton/deploy/baton" "${root}/bin/baton" SYMBOLIC)
file(INSTALL "${SOURCE}/deploy/demo-model" DESTINATION "${prefix}/share/baton")
file(INSTALL "${SOURCE}/deploy/grafana" DESTINATION "${prefix}/share/baton")
file(INSTALL "${SOURCE}/deploy/ctl/batonctl.bash" DESTINATION "${prefix}/share/bash-completion/completions" RENAME batonctl)
file(INSTALL "${SOURCE}/README.md" DESTINATION "${prefix}/share/doc/baton")

# A program's own help is its manual: --help says every flag once.
function(man_page name what)
  execute_process(COMMAND ${ARGN} --help OUTPUT_VARIABLE help RESULT_VARIABLE rc)
  if(NOT rc EQUAL 0)
    message(FATAL_ERROR "${ARGN} --help ended with ${rc}")
  endif()
  string(REPLACE "\\" "\\e" help "${help}")
  string(REPLACE "-" "\\-" help "${help}")
  string(REGEX REPLACE "\n([.'])" "\n\\\\&\\1" help "\n${help}")
  file(WRITE "${root}/share/man/man1/${name}.1"
    ".TH ${name} 1 \"\" \"Baton\"\n.SH NAME\n${name} \\- ${what}\n.SH DESCRIPTION\n.nf${help}.fi\n")
endfunction()
man_page(baton "starts and stops the processes of one host" "${SOURCE}/deploy/baton")
man_page(batonctl "looks at a cluster and drains its workers" "${BINARIES}/batonctl")
man_page(baton-router "takes requests over HTTP" "${BINARIES}/baton-router")
man_page(baton-prefill "computes prompts" "${BINARIES}/baton-prefill")
man_page(baton-decode "writes answers" "${BINARIES}/baton-decode")
man_page(baton-logits "logits of given token ids" "${BINARIES}/baton-logits")

# A cluster file that is there is the operator's; with DESTDIR a packager's tree is made.
set(conf "$ENV{DESTDIR}${etc}/baton/cluster.conf")
if(NOT EXISTS "${conf}" OR NOT "$ENV{DESTDIR}" STREQUAL "")
  file(READ "${SOURCE}/deploy/cluster.conf" text)
  string(REPLACE "model = deploy/demo-model" "model = ${prefix}/share/baton/demo-model" text "${text}")
  string(REPLACE "bin = build/release/bin"
    "bin = ${prefix}/bin\nruntime_dir = ${run}\nlog_dir = ${logs}" text "${text}")
  string(REPLACE "Paths are relative to the source tree." "Paths are absolute here." text "${text}")
  string(REPLACE "`deploy/baton up`" "`baton up`" text "${text}")
  file(WRITE "${conf}" "${text}")
endif()

file(READ "${SOURCE}/deploy/systemd/baton.service.in" unit)
string(REPLACE "@BIN@" "${prefix}/bin" unit "${unit}")
string(REPLACE "@ETC@" "${etc}" unit "${unit}")
file(WRITE "${root}/lib/systemd/system/baton.service" "${unit}")
