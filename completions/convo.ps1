# PowerShell completion for convo
# Load it with: convo --completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName convo -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition } |
        ForEach-Object { $_.ToString().Trim('"', "'") })
    $env:_CONVO_COMPLETE = '1'
    try {
        convo @words "=$wordToComplete" 2>$null | ForEach-Object {
            $value, $help = $_ -split "`t", 2
            if (-not $help) { $help = $value }
            [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
        }
    } finally {
        Remove-Item Env:_CONVO_COMPLETE
    }
}
